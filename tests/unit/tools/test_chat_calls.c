/* Conversations through the public calls: the file's own template, built-in forms, requests in
 * JSON, what a template offers. */
#include "unit/engine/nano.h"

#include "base/file.h"

static char out[4096];
static size_t n_bytes;

static void chat(void **state)
{
    (void)state;
    nano n = nano_open(1);
    const bitnet_message talk[] = {{"user", "Hi <|eot_id|>"}};
    OK(bitnet_chat_render(n.engine, NULL, talk, 1, true, out, sizeof out, &n_bytes, &err));
    out[n_bytes] = '\0';
    assert_non_null(strstr(out, "User: Hi"));
    assert_non_null(strstr(out, "Assistant:"));
    assert_null(strstr(out, "Hi <|eot_id|><|eot_id|>"));
    FAILS(bitnet_chat_render(n.engine, NULL, talk, 1, true, out, 5, &n_bytes, &err),
          BITNET_ARGUMENT, "the buffer holds 5");
    FAILS(bitnet_chat_render(n.engine, "vicuna", talk, 1, true, out, sizeof out, &n_bytes, &err),
          BITNET_ARGUMENT, "no template is called \"vicuna\"; there are: bitnet, ");
    const bitnet_message wrong[] = {{"wizard", "Hi"}};
    FAILS(bitnet_chat_render(n.engine, "llama3", wrong, 1, true, out, sizeof out, &n_bytes, &err),
          BITNET_ARGUMENT, "wizard");
    assert_string_equal(bitnet_template_list(0), "bitnet");
    assert_null(bitnet_template_list(-1));
    assert_null(bitnet_template_list(1000));
    nano_close(&n);
}

static const char *rendered(const nano *n, const char *name, const char *request)
{
    bitnet_error err = {0};
    if (bitnet_chat_render_json(n->engine, name, request, strlen(request), out, sizeof out - 1,
                                &n_bytes, &err) != BITNET_OK)
        fail_msg("%s: %s", request, err.message);
    out[n_bytes] = '\0';
    return out;
}

static void refused(const nano *n, const char *name, const char *request, const char *why)
{
    FAILS(bitnet_chat_render_json(n->engine, name, request, strlen(request), out, sizeof out,
                                  &n_bytes, &err),
          BITNET_ARGUMENT, why);
}

/* The form of the file, and the file's own template, write the same. */
static void requests(void **state)
{
    (void)state;
    nano n = nano_open(1);
    static const char *const names[] = {NULL, "bitnet", "file"};
    for (int i = 0; i < 3; i++) {
        assert_string_equal(
            rendered(&n, names[i],
                     "{\"messages\":[{\"role\":\"developer\",\"content\":\"S\"},{\"role\":\"user\","
                     "\"content\":[{\"type\":\"text\",\"text\":\"A <|eot_id|>\"},"
                     "{\"type\":\"text\",\"text\":\"B\"}]}]}"),
            "<|begin_of_text|>System: S<|eot_id|>User: A < |eot_id|>\nB<|eot_id|>Assistant:");
        assert_string_equal(rendered(&n, names[i],
                                     "{\"messages\":[{\"role\":\"assistant\",\"content\":null}],"
                                     "\"add_generation_prompt\":false,\"tools\":[],"
                                     "\"chat_template_kwargs\":{\"enable_thinking\":true}}"),
                            "<|begin_of_text|>Assistant: <|eot_id|>");
        refused(&n, names[i],
                "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"tools\":[{}]}",
                "does not show tools");
        refused(&n, names[i], "{\"messages\":[{\"role\":\"wizard\",\"content\":\"x\"}]}",
                "message 0: role \"wizard\"");
        refused(&n, names[i], "{\"messages\":[{\"role\":\"user\",\"content\":3}]}",
                "message 0 (user): its content");
        refused(&n, names[i], "{\"messages\":", "line 1");
        refused(&n, names[i], "{\"messages\":[],\"model\":\"x\"}", "\"model\" is not a field");
    }
    static const char call[] =
        "{\"messages\":[{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{}]}]}";
    refused(&n, "chatml", call, "has no place for calls of tools");
    refused(&n, "chatml", "{\"messages\":[{\"role\":\"tool\",\"content\":\"x\"}]}",
            "has no place for answers of tools");
    FAILS(bitnet_chat_render_json(n.engine, NULL, call, 3, out, sizeof out, &n_bytes, &err),
          BITNET_ARGUMENT, "chat request");
    nano_close(&n);
}

static void features(void **state)
{
    (void)state;
    nano n = nano_open(1);
    bitnet_chat_features f;
    bitnet_chat_features_init(&f);
    OK(bitnet_chat_features_get(n.engine, NULL, &f, &err));
    assert_string_equal(f.name, "bitnet");
    assert_false(f.tools || f.thinking || f.tool_style != BITNET_TOOLS_NONE);
    assert_true(f.n_source > 20 && memcmp(f.source, "{% for message in messages %}", 20) == 0);
    assert_string_equal(f.problem, "");
    OK(bitnet_chat_features_get(n.engine, "file", &f, &err));
    assert_string_equal(f.name, "file");
    FAILS(bitnet_chat_features_get(n.engine, "vicuna", &f, &err), BITNET_ARGUMENT, "vicuna");
    f.struct_size = 0;
    FAILS(bitnet_chat_features_get(n.engine, NULL, &f, &err), BITNET_ARGUMENT, "struct_size is 0");
    nano_close(&n);
}

/* The nano model with a place of its template changed; the length stays. *data is the caller's. */
static bitnet_engine *changed(const nano *n, const char *old, const char *by, char **data)
{
    size_t n_data;
    bitnet_engine *e = NULL;
    OK(bnet_read_file(NANO_PATH, 1 << 26, data, &n_data, &err));
    char *at = memmem(*data, n_data, old, strlen(old));
    assert_non_null(at);
    assert_int_equal(strlen(old), strlen(by));
    memcpy(at, by, strlen(by));
    OK(bitnet_engine_open_memory(n->runtime, *data, n_data, NULL, &e, &err));
    return e;
}

static void another_template(void **state)
{
    (void)state;
    nano n = nano_open(1), m = n;
    char *data;
    m.engine = changed(&n, "message['content'] | trim +", "message['content'] |upper +", &data);
    assert_string_equal(bitnet_engine_model(m.engine)->chat_template, "file");
    assert_int_equal(bitnet_engine_model(m.engine)->template_match, BITNET_TEMPLATE_EXACT);
    assert_string_equal(
        rendered(&m, NULL, "{\"messages\":[{\"role\":\"user\",\"content\":\" hi \"}]}"),
        "<|begin_of_text|>User:  HI <|eot_id|>Assistant:");
    bitnet_engine_close(m.engine);
    bnet_free(data);
    m.engine = changed(&n, "message['content'] | trim +", "message['content'] | trem +", &data);
    assert_string_equal(bitnet_engine_model(m.engine)->chat_template, "bitnet");
    assert_int_equal(bitnet_engine_model(m.engine)->template_match, BITNET_TEMPLATE_GUESSED);
    bitnet_chat_features f;
    bitnet_chat_features_init(&f);
    OK(bitnet_chat_features_get(m.engine, NULL, &f, &err));
    assert_non_null(strstr(f.problem, "line 1"));
    assert_non_null(strstr(f.problem, "trem"));
    static const char request[] = "{\"messages\":[]}";
    FAILS(bitnet_chat_render_json(m.engine, "file", request, strlen(request), out, sizeof out,
                                  &n_bytes, &err),
          BITNET_TOKENIZER, "trem");
    bitnet_engine_close(m.engine);
    bnet_free(data);
    nano_close(&n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chat),
        cmocka_unit_test(requests),
        cmocka_unit_test(features),
        cmocka_unit_test(another_template),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
