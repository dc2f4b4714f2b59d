/* jinja.c - a chat template from its text to what it writes. */
#include "jinja/jinja_impl.h"

static const bnet_jinja_limits usual = {
    .steps = 4000000, .memory = (size_t)64 << 20, .output = (size_t)16 << 20};

static jinja machine_of(const bnet_jinja_limits *limits, bitnet_error *err)
{
    jinja m = {.limits = limits ? *limits : usual, .err = err, .line = 1};
    m.stack = (uintptr_t)__builtin_frame_address(0);
    m.limits.steps = m.limits.steps ? m.limits.steps : usual.steps;
    m.limits.memory = m.limits.memory ? m.limits.memory : usual.memory;
    m.limits.output = m.limits.output ? m.limits.output : usual.output;
    return m;
}

/* The values become the outermost scope. */
static void begin(jinja *m, bnet_span context)
{
    jinja_value values = bnet_jinja_from_json(m, context);
    m->scope = bnet_jinja_alloc(m, sizeof *m->scope);
    if (!m->failed)
        m->scope->names = *values.u.dict;
}

static bool is_utf8(bnet_span s)
{
    for (size_t i = 0; i < s.n;) {
        int n = bnet_utf8_len(s.data + i, s.n - i);
        if (n <= 0)
            return false;
        i += (size_t)n;
    }
    return true;
}

bitnet_status bnet_jinja_render(bnet_span source, bnet_span context,
                                const bnet_jinja_limits *limits, bnet_str *out, bitnet_error *err)
{
    jinja m = machine_of(limits, err);
    bnet_str text = {0};
    m.out = &text;
    if (!is_utf8(source))
        bnet_jinja_fail(&m, "it is no UTF-8");
    jinja_node *all = m.failed ? NULL : bnet_jinja_parse(&m, source);
    if (!m.failed)
        begin(&m, context);
    bnet_jinja_exec(&m, all);
    if (!m.failed)
        bnet_str_add(out, text.data, text.n);
    if (!m.failed && (text.failed || out->failed)) {
        m.failed = true;
        m.status = bnet_no_memory(err, "text of a chat template");
    }
    bnet_str_free(&text);
    bnet_jinja_close(&m);
    return m.failed ? m.status : BITNET_OK;
}

bitnet_status bitnet_template_render(const char *source, size_t n_source, const char *values,
                                     size_t n_values, char *bytes, size_t cap, size_t *n_bytes,
                                     bitnet_error *err)
{
    bnet_str out = {0};
    if ((!source && n_source) || (!values && n_values) || !n_bytes)
        return bnet_fail(err, BITNET_ARGUMENT,
                         "template: source, values and n_bytes must not be NULL");
    *n_bytes = 0;
    bitnet_status status =
        bnet_jinja_render((bnet_span){source ? source : "", n_source},
                          (bnet_span){values ? values : "", n_values}, NULL, &out, err);
    if (status == BITNET_OK)
        status = bnet_hand_out(out.data, out.n, 1, bytes, cap, n_bytes, "template", err);
    bnet_str_free(&out);
    return status;
}
