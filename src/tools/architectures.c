/* architectures.c - the families the model layer runs, for listing. */
#include "bitnet_tools.h"
#include "model/arch.h"

const char *bitnet_architecture_list(int i)
{
    return bnet_arch_at(i);
}
