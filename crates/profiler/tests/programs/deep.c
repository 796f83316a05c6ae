/* Calls itself so many times, works there, and says how long. Usage: deep DEPTH SECONDS. */
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

static double spent(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return now.tv_sec + now.tv_nsec / 1e9;
}

__attribute__((noinline)) int at_the_bottom(double seconds) {
    volatile double x = 0;
    while (spent() < seconds)
        for (int i = 0; i < 100000; i++) x = x * 1.0000001 + 0.5;
    return (int)x;
}

__attribute__((noinline)) int descend(int depth, double seconds) {
    volatile int own = depth;
    if (depth == 0) return at_the_bottom(seconds) + own;
    return descend(depth - 1, seconds) + own;
}

int main(int count, char **arguments) {
    if (count < 3) return 1;
    /* The stack grows as far as the limit allows that is in force when it grows. */
    struct rlimit limit = {64 << 20, 64 << 20};
    if (setrlimit(RLIMIT_STACK, &limit)) return 1;
    descend(atoi(arguments[1]), atof(arguments[2]));
    return 0;
}
