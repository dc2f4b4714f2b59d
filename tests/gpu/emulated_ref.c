/* emulated_ref.c - the reference kernels of backend/gpu as functions of the emulated device
 * (emulated_kernel.h). */
#include "backend/gpu/ref/ref_attention.h"
#include "backend/gpu/ref/ref_half.h"
#include "backend/gpu/ref/ref_linear.h"
#include "backend/gpu/ref/ref_pack.h"
#include "backend/gpu/ref/ref_vector.h"
