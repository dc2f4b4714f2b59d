/* tokens.c - calls the library's tokenizer with room that fits. */
#include "ask/tokens.h"

#include <stdlib.h>

#include "http/refuse.h"

/* What the tokenizer needs for each byte of a text, at most: a symbol of each character and a pair
 * of neighbours with it, in lists that grow by doubling, and the tokens. */
enum { WORK_BYTES = 64 };

static bool tokenize(srv_exchange *x, const srv_model *model, const char *text, size_t n_text,
                     unsigned flags, int32_t **ids, size_t *n_ids)
{
    bitnet_error err = {BITNET_OK, ""};
    size_t cap = n_text / 3 + 16; /* most texts have fewer; else the second round fits */
    for (int round = 0; round < 2; round++) {
        free(*ids);
        *ids = malloc(cap * sizeof **ids);
        if (!*ids)
            return srv_no_memory(x);
        if (bitnet_tokenize(model->engine, text, n_text, flags, *ids, cap, n_ids, &err) ==
            BITNET_OK)
            return true;
        if (*n_ids <= cap)
            break;
        cap = *n_ids;
    }
    free(*ids);
    *ids = NULL;
    srv_fail_with(x, &err);
    return false;
}

bool srv_tokenize(srv_exchange *x, const srv_model *model, const char *text, size_t n_text,
                  unsigned flags, int32_t **ids, size_t *n_ids)
{
    size_t work = srv_work_charge(x, WORK_BYTES * (n_text + 1));
    bool good = work && tokenize(x, model, text, n_text, flags, ids, n_ids);
    srv_work_done(x, work);
    return good;
}

bool srv_detokenize(srv_exchange *x, const srv_model *model, const int32_t *ids, size_t n_ids,
                    unsigned flags, srv_textbuf *out)
{
    bitnet_error err = {BITNET_OK, ""};
    size_t n = 0;
    bitnet_status status = bitnet_detokenize(model->engine, ids, n_ids, flags, NULL, 0, &n, &err);
    char *bytes = n ? malloc(n) : NULL;
    if (n && !bytes)
        return srv_no_memory(x);
    if (n)
        status = bitnet_detokenize(model->engine, ids, n_ids, flags, bytes, n, &n, &err);
    if (status == BITNET_OK)
        srv_textbuf_add(out, bytes ? bytes : "", n);
    else
        srv_fail_with(x, &err);
    free(bytes);
    return status == BITNET_OK && (!out->failed || srv_no_memory(x));
}
