/* jinja_driver.c - renders templates for a script. Standard input has pairs of records, a template
 * and its values in JSON, each a 32-bit length and its bytes; for each pair the answer is a status,
 * a length and the text or the message. */
#include <stdio.h>
#include <stdlib.h>

#include "jinja/jinja.h"

static char *record(uint32_t *n)
{
    if (fread(n, sizeof *n, 1, stdin) != 1)
        return NULL;
    char *bytes = malloc(*n ? *n : 1);
    if (bytes && fread(bytes, 1, *n, stdin) == *n)
        return bytes;
    free(bytes);
    return NULL;
}

static void answer(bnet_span source, bnet_span values)
{
    const bnet_jinja_limits limits = {.now = 1700000000};
    bitnet_error err = {0};
    bnet_str out = {0};
    int32_t status = (int32_t)bnet_jinja_render(source, values, &limits, &out, &err);
    uint32_t n = status ? (uint32_t)strlen(err.message) : (uint32_t)out.n;
    fwrite(&status, sizeof status, 1, stdout);
    fwrite(&n, sizeof n, 1, stdout);
    fwrite(status ? err.message : out.data ? out.data : "", 1, n, stdout);
    fflush(stdout);
    bnet_str_free(&out);
}

int main(void)
{
    uint32_t n_source, n_values;
    for (char *source; (source = record(&n_source)) != NULL; free(source)) {
        char *values = record(&n_values);
        if (values)
            answer((bnet_span){source, n_source}, (bnet_span){values, n_values});
        free(values);
    }
    return 0;
}
