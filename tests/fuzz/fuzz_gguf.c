/* Fuzz target: any bytes as a GGUF file; what opens is used to the last value. */
#include "fuzz/gguf_touch.h"

static void drop(void *user, bitnet_log_level level, const char *module, const char *text)
{
    *(size_t *)user += strlen(text) + strlen(module) + (size_t)level;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    bnet_gguf *g = NULL;
    bitnet_error err = {0};
    size_t logged = 0;
    bnet_log log = {drop, &logged};
    bitnet_status st = bnet_gguf_open_memory(data, n, "fuzz", &log, &g, &err);
    if (st != BITNET_OK) {
        if (st != BITNET_MODEL || !strstr(err.message, "(offset 0x"))
            abort(); /* every refusal of bytes says where */
        return 0;
    }
    volatile uint64_t used = touch_all(g) + logged; /* so that no read is optimised away */
    (void)used;
    bnet_gguf_close(g);
    return 0;
}
