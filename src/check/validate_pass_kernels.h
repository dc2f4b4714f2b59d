/* validate_pass_kernels.h - a kernel of whole passes as an operation by itself: shared by the file
 * that has the cases and the one that knows the operations. */
#ifndef BNET_VALIDATE_PASS_KERNELS_H
#define BNET_VALIDATE_PASS_KERNELS_H

#include "check/validate.h"

/* The same case on both sides; what was found. */
typedef struct pair {
    kernel_case side[2]; /* the device's, the reference's */
    double ulps, worst;  /* accepted of the largest value of a row; found */
    size_t n_values, n_ties;
    bool differs;
    char note[120];
} pair;

/* One operation: how a case of it is made, what it means, how the kernel is called, what counts. */
typedef struct kernel_op {
    bnet_op op;
    bool (*open)(kernel_case *c);
    void (*run)(kernel_case *c);   /* by single operations, on any backend */
    bool (*alone)(kernel_case *c); /* by the kernel itself; NULL: as `run` */
    void (*compare)(pair *p);
} kernel_op;

/* NULL: no such operation. */
const kernel_op *bnet_kernel_op(bnet_op op);

#endif
