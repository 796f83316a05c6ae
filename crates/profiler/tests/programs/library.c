/* A library that is opened while the program runs. */
__attribute__((noinline)) double in_library(double x, int times) {
    for (int i = 0; i < times; i++) x = x * 1.0000001 + 0.375;
    return x;
}
