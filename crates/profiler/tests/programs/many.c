/* Starts programs that end soon, one after the other. Usage: many COUNT PROGRAM; without arguments, a program that ends soon. */
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static double spent(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return now.tv_sec + now.tv_nsec / 1e9;
}

/* Longer than the time between two samples. */
__attribute__((noinline)) static void briefly(void) {
    volatile double x = 0;
    while (spent() < 0.003)
        for (int i = 0; i < 1000; i++) x = x * 1.0000001 + 0.5;
}

int main(int count, char **arguments) {
    if (count < 3) {
        briefly();
        return 0;
    }
    for (int i = atoi(arguments[1]); i > 0; i--) {
        char *alone[] = {arguments[2], 0}, *none[] = {0};
        pid_t child;
        int status = 1;
        if (i & 1) {
            if (posix_spawn(&child, alone[0], 0, 0, alone, none)) return 1;
        } else if (!(child = fork())) {
            execve(alone[0], alone, none);
            _exit(1);
        }
        if (waitpid(child, &status, 0) != child || status) return 1;
    }
    return 0;
}
