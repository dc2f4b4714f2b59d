/* Masks and biases on the GPU: the choices that are made from all logits. */
#include "device.h"
#include "unit/engine/constrained.h"

static void generations(void **state)
{
    (void)state;
    bitnet_runtime *runtime = NULL;
    bitnet_engine *engine = NULL;
    bitnet_runtime_options o;
    bitnet_runtime_options_init(&o);
    o.n_threads = 2;
    o.device = "cuda";
    OK(bitnet_runtime_open(&o, &runtime, &err));
    OK(bitnet_engine_open(runtime, test_model(), NULL, &engine, &err));
    for (int round = 0; round < (quick() ? 2 : 8); round++)
        check_constrained_generation(engine, round);
    bitnet_engine_close(engine);
    bitnet_runtime_close(runtime);
}

int main(void)
{
    find_device("90");
    const struct CMUnitTest tests[] = {cmocka_unit_test(generations)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
