/* user_kernel.h - two kernels as a program may bring them, in PTX, which every driver compiles for
 * its device: no toolkit is needed. The emulated libcuda has the same functions in C.
 *   user_scale_add: y[i] = a * x[i] + y[i] for i < n
 *   user_spin: out[i] = the n_rounds-th number of a linear congruence that begins with i: work that
 *   keeps one multiprocessor busy for as long as wanted, with a result that can be checked */
#ifndef USER_KERNEL_H
#define USER_KERNEL_H

static const char user_kernel[] =
    ".version 6.4\n"
    ".target sm_75\n"
    ".address_size 64\n"
    ".visible .entry user_scale_add(.param .u64 y, .param .u64 x, .param .f32 a, .param .u32 n)\n"
    "{\n"
    "  .reg .pred %p; .reg .f32 %f<4>; .reg .b32 %r<5>; .reg .b64 %d<6>;\n"
    "  ld.param.u64 %d1, [y]; ld.param.u64 %d2, [x];\n"
    "  ld.param.f32 %f1, [a]; ld.param.u32 %r1, [n];\n"
    "  mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mov.u32 %r4, %tid.x;\n"
    "  mad.lo.u32 %r2, %r2, %r3, %r4;\n"
    "  setp.ge.u32 %p, %r2, %r1;\n"
    "  @%p bra done;\n"
    "  mul.wide.u32 %d3, %r2, 4;\n"
    "  add.u64 %d1, %d1, %d3; add.u64 %d2, %d2, %d3;\n"
    "  ld.global.f32 %f2, [%d2]; ld.global.f32 %f3, [%d1];\n"
    "  mul.rn.f32 %f2, %f2, %f1; add.rn.f32 %f3, %f3, %f2;\n"
    "  st.global.f32 [%d1], %f3;\n"
    "done:\n"
    "  ret;\n"
    "}\n"
    ".visible .entry user_spin(.param .u64 out, .param .u32 n_rounds)\n"
    "{\n"
    "  .reg .pred %p; .reg .b32 %r<6>; .reg .b64 %d<3>;\n"
    "  ld.param.u64 %d1, [out]; ld.param.u32 %r1, [n_rounds];\n"
    "  mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mov.u32 %r4, %tid.x;\n"
    "  mad.lo.u32 %r2, %r2, %r3, %r4;\n"
    "  mov.u32 %r3, %r2; mov.u32 %r4, 0;\n"
    "loop:\n"
    "  setp.ge.u32 %p, %r4, %r1;\n"
    "  @%p bra end;\n"
    "  mad.lo.u32 %r3, %r3, 1664525, 1013904223;\n"
    "  add.u32 %r4, %r4, 1;\n"
    "  bra loop;\n"
    "end:\n"
    "  mul.wide.u32 %d2, %r2, 4;\n"
    "  add.u64 %d1, %d1, %d2;\n"
    "  st.global.u32 [%d1], %r3;\n"
    "  ret;\n"
    "}\n";

#endif
