/* prompts.c - see prompts.h. */
#include "ask/prompts.h"

#include <stdlib.h>

#include "ask/fields.h"

#define MAX_PROMPTS 2048

static bool wrong(srv_exchange *x, const char *name)
{
    return srv_field_wrong(x, name,
                           "a string, a list of 1 to 2048 strings, a list of tokens, or a list of "
                           "1 to 2048 lists of tokens");
}

static bool is_tokens(const json_t *value)
{
    return json_is_array(value) && json_is_integer(json_array_get(value, 0));
}

bool srv_prompts_read(srv_exchange *x, const json_t *body, const char *name, srv_prompts *p)
{
    size_t i;
    json_t *one, *value = srv_field(body, name);
    *p = (srv_prompts){.name = name, .value = value, .n = 1};
    if (json_is_string(value) || is_tokens(value))
        return true;
    p->is_list = true;
    p->n = json_array_size(value);
    if (!json_is_array(value) || p->n == 0 || p->n > MAX_PROMPTS)
        return wrong(x, name);
    json_array_foreach(value, i, one)
    {
        if (!json_is_string(one) && !is_tokens(one))
            return wrong(x, name);
    }
    return true;
}

/* The numbers of a list; the vocabulary is asked later. */
static bool set_ids(srv_exchange *x, srv_prompts *p, const json_t *list, srv_ask *a)
{
    size_t i, n = json_array_size(list);
    json_t *id;
    free(p->ids);
    p->ids = malloc((n + 1) * sizeof *p->ids);
    if (!p->ids) {
        srv_fail(x, 503, "out_of_memory", NULL, "out of memory");
        return false;
    }
    json_array_foreach(list, i, id)
    {
        json_int_t v = json_integer_value(id);
        if (!json_is_integer(id) || v < 0 || v > INT32_MAX)
            return srv_field_wrong(x, p->name, "made of tokens, whole numbers from 0 on");
        p->ids[i] = (int32_t)v;
    }
    a->ids = p->ids;
    a->n_ids = n;
    return true;
}

bool srv_prompts_set(srv_exchange *x, srv_prompts *p, size_t i, srv_ask *a)
{
    const json_t *one = p->is_list ? json_array_get(p->value, i) : p->value;
    a->text = NULL;
    a->ids = NULL;
    a->n_text = a->n_ids = 0;
    if (!json_is_string(one))
        return set_ids(x, p, one, a);
    a->text = json_string_value(one);
    a->n_text = json_string_length(one);
    return true;
}

void srv_prompts_free(srv_prompts *p)
{
    free(p->ids);
    p->ids = NULL;
}
