# A function whose unwinding table has an expression that jumps to its own beginning.
    .text
    .globl work
    .type work, @function
work:
    .cfi_startproc
    .cfi_escape 0x0f, 3, 0x2f, 0xfd, 0xff   # the frame's address: skip -3
    .fill 256, 1, 0x90
    .cfi_endproc
    .size work, 256
