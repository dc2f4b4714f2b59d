/* ref.cu - the reference kernels of backend/gpu as CUDA kernels. */
#include "ref_dialect.cuh"

#include "backend/gpu/ref/ref_attention.h"
#include "backend/gpu/ref/ref_half.h"
#include "backend/gpu/ref/ref_linear.h"
#include "backend/gpu/ref/ref_pack.h"
#include "backend/gpu/ref/ref_vector.h"
