/* A small program without a library, whose every section a test damages. */
static inline __attribute__((always_inline)) int inner(int x) { return x * 3 + 1; }
static inline __attribute__((always_inline)) int middle(int x) { return inner(x) ^ inner(x + 1); }
__attribute__((noinline)) int work(int x) {
    volatile int buffer[8];
    buffer[x & 7] = middle(x);
    return buffer[1];
}
__attribute__((noinline)) int deep(int x) { return x ? deep(x - 1) + work(x) : 0; }
void _start(void) {
    deep(100);
    for (;;) {}
}
