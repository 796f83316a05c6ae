/* Works below a function whose frame is found by an unusual rule. Usage: frames register|aligned|large SECONDS. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

static double spent(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return now.tv_sec + now.tv_nsec / 1e9;
}

/* It changes the registers that functions keep for their callers, so that these have to be read from the stack. */
__attribute__((noinline)) void work(double end) {
    do {
        for (int i = 0; i < 100000; i++)
            __asm__ volatile("xor %%ebx, %%ebx; mov $8, %%r12d; mov $8, %%r13d" ::: "rbx", "r12", "r13", "r14", "r15");
    } while (spent() < end);
}

/* Aligns its frame and finds it from `rbx`, as `_dl_runtime_resolve_xsavec` of glibc does. The frame pointer is of no use. */
void by_register(double end);
__asm__(
    "    .text\n"
    "    .type by_register, @function\n"
    "by_register:\n"
    "    .cfi_startproc\n"
    "    push %rbp\n"
    "    .cfi_adjust_cfa_offset 8\n"
    "    .cfi_rel_offset rbp, 0\n"
    "    push %rbx\n"
    "    .cfi_adjust_cfa_offset 8\n"
    "    .cfi_rel_offset rbx, 0\n"
    "    mov %rsp, %rbx\n"
    "    .cfi_def_cfa_register rbx\n"
    "    sub $640, %rsp\n"
    "    and $-64, %rsp\n"
    "    mov $8, %ebp\n"
    "    call work\n"
    "    mov %rbx, %rsp\n"
    "    .cfi_def_cfa_register rsp\n"
    "    pop %rbx\n"
    "    .cfi_adjust_cfa_offset -8\n"
    "    .cfi_restore rbx\n"
    "    pop %rbp\n"
    "    .cfi_adjust_cfa_offset -8\n"
    "    .cfi_restore rbp\n"
    "    ret\n"
    "    .cfi_endproc\n"
    "    .size by_register, . - by_register\n");

/* GCC finds its frame from memory. */
__attribute__((noinline)) void aligned(double end) {
    volatile char kept[256] __attribute__((aligned(64)));
    kept[0] = 1;
    work(end);
    kept[1] = kept[0];
}

/* Its frame is larger than any copy of a stack. The frame pointer is of no use. */
__attribute__((noinline)) void large(double end) {
    volatile char kept[600 << 10];
    kept[0] = 1;
    __asm__ volatile("mov $8, %%ebp" ::: "rbp");
    work(end);
    kept[1] = kept[0];
}

__attribute__((noinline)) int middle(const char *which, double end) {
    volatile int own = 1;
    if (!strcmp(which, "register")) by_register(end);
    if (!strcmp(which, "aligned")) aligned(end);
    if (!strcmp(which, "large")) large(end);
    return own;
}

int main(int count, char **arguments) {
    if (count < 3) return 1;
    return middle(arguments[1], atof(arguments[2])) - 1;
}
