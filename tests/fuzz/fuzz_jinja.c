/* fuzz_jinja.c - any template with any values. Input: the template, a byte 0xF8 (which no UTF-8
 * has), the values as JSON; without that byte the values are a conversation. What must hold: no
 * crash, and an end within the bounds. */
#include <stdio.h>
#include <stdlib.h>

#include "jinja/jinja.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    static const char usual[] =
        "{\"messages\":[{\"role\":\"system\",\"content\":\" S "
        "\"},{\"role\":\"user\",\"content\":\"h\xc3\xa9 l\\n\"},"
        "{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"name\":\"f\",\"arguments\":{"
        "\"a\":1.5}}]}],"
        "\"a\":1,\"b\":2.5,\"s\":\"abc "
        "def\",\"l\":[3,1,2],\"d\":{\"z\":1,\"a\":\"q\"},\"t\":true,\"n\":null,"
        "\"bos_token\":\"<s>\",\"add_generation_prompt\":true}";
    const bnet_jinja_limits limits = {
        .steps = 20000, .memory = 1 << 20, .output = 1 << 16, .now = 1700000000};
    const char *text = (const char *)data, *cut = n_bytes ? memchr(text, 0xf8, n_bytes) : NULL;
    bnet_span source = {n_bytes ? text : "", cut ? (size_t)(cut - text) : n_bytes},
              values = {usual, sizeof usual - 1};
    bitnet_error err = {0};
    bnet_str out = {0};
    if (cut)
        values = (bnet_span){cut + 1, n_bytes - source.n - 1};
    bitnet_status status = bnet_jinja_render(source, values, &limits, &out, &err);
    if (out.n > limits.output || (status != BITNET_OK && (!err.message[0] || out.n))) {
        fprintf(stderr, "fuzz_jinja: %zu bytes with status %d\n", out.n, (int)status);
        abort();
    }
    bnet_str_free(&out);
    return 0;
}
