# Debug information whose inlined functions nest 100,000 deep in a function at address 0.
    .text
    .globl work
    .type work, @function
work:
    .fill 256, 1, 0x90
    .size work, 256

    .section .debug_abbrev, "", @progbits
    .uleb128 1, 0x11        # a unit, with children, an address and a length
    .byte 1
    .uleb128 0x11, 0x01, 0x12, 0x07, 0, 0
    .uleb128 2, 0x2e        # a function, alike
    .byte 1
    .uleb128 0x11, 0x01, 0x12, 0x07, 0, 0
    .uleb128 3, 0x1d        # an inlined function, with children
    .byte 1
    .uleb128 0, 0
    .byte 0

    .section .debug_info, "", @progbits
    .long end - start
start:
    .short 4                # DWARF 4
    .long 0
    .byte 8
    .byte 1
    .quad 0, 256
    .byte 2
    .quad 0, 256
    .fill 100000, 1, 3
    .fill 100002, 1, 0
end:
