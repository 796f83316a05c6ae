/* Spends its time in functions of known names, and prints what each took of the processor.
   Usage: split SECONDS [LIBRARY]. With a library, a function of it takes part. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>

typedef double (*work)(double, int);

static double seconds(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return now.tv_sec + now.tv_nsec / 1e9;
}

#define WORK(name, step)                                                   \
    __attribute__((noinline)) double name(double x, int times) {           \
        for (int i = 0; i < times; i++) x = x * 1.0000001 + step;          \
        return x;                                                          \
    }
WORK(largest, 0.5)
WORK(middle, 0.25)
WORK(smallest, 0.125)
WORK(in_thread, 0.75)
WORK(in_handler, 0.625)

static volatile double spent_in_handler;
static volatile double sink;

__attribute__((noinline)) static void on_alarm(int number) {
    (void)number;
    double begin = seconds(CLOCK_THREAD_CPUTIME_ID);
    sink += in_handler(1, 2000000);
    spent_in_handler += seconds(CLOCK_THREAD_CPUTIME_ID) - begin;
}

/* The time of this thread outside of the handler, which may run between the two looks. */
static double outside(void) {
    double before, now;
    do {
        before = spent_in_handler;
        now = seconds(CLOCK_THREAD_CPUTIME_ID);
    } while (before != spent_in_handler);
    return now - before;
}

__attribute__((noinline)) static double timed(work function, double x, int times, double *spent) {
    double begin = outside();
    x = function(x, times);
    *spent += outside() - begin;
    return x + 1;
}

static double end, thread_spent;

static void *thread(void *unused) {
    (void)unused;
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, 0);
    double x = 0;
    while (seconds(CLOCK_MONOTONIC) < end) {
        double begin = seconds(CLOCK_THREAD_CPUTIME_ID);
        x = in_thread(x, 1000000) + 1;
        thread_spent += seconds(CLOCK_THREAD_CPUTIME_ID) - begin;
    }
    sink += x;
    return 0;
}

int main(int count, char **arguments) {
    end = seconds(CLOCK_MONOTONIC) + (count > 1 ? atof(arguments[1]) : 1);
    work library = 0;
    if (count > 2) {
        void *opened = dlopen(arguments[2], RTLD_NOW);
        library = opened ? (work)dlsym(opened, "in_library") : 0;
        if (!library) return 1;
    }
    /* By processor time: where others keep the cores busy, an alarm clock would leave nothing but the handler. */
    signal(SIGPROF, on_alarm);
    struct itimerval often = {{0, 100000}, {0, 100000}};
    setitimer(ITIMER_PROF, &often, 0);
    pthread_t other;
    pthread_create(&other, 0, thread, 0);
    double spent[4] = {0}, x = 0;
    while (seconds(CLOCK_MONOTONIC) < end) {
        x = timed(largest, x, 1000000, &spent[0]);
        x = timed(middle, x, 600000, &spent[1]);
        x = timed(smallest, x, 200000, &spent[2]);
        if (library) x = timed(library, x, 400000, &spent[3]);
    }
    pthread_join(other, 0);
    sink += x;
    printf("largest %f\nmiddle %f\nsmallest %f\nin_library %f\nin_thread %f\nin_handler %f\n", spent[0], spent[1],
           spent[2], spent[3], thread_spent, spent_in_handler);
    return 0;
}
