/* The fat binary of all kernels, as constant data of the library. */
  .section .rodata
  .balign 64
  .globl tutti_kernels_begin
  .hidden tutti_kernels_begin
  .type tutti_kernels_begin, %object
tutti_kernels_begin:
  .incbin TUTTI_KERNELS
  .globl tutti_kernels_end
  .hidden tutti_kernels_end
tutti_kernels_end:
  .size tutti_kernels_begin, tutti_kernels_end - tutti_kernels_begin
  .section .note.GNU-stack,"",%progbits
