/* errors.c - what an error looks like in each API. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "http/http.h"

/* ---- texts ---- */

/* Bytes of the UTF-8 character at s; 0: there is none. */
static size_t character(const unsigned char *s)
{
    if (s[0] < 0x80)
        return 1;
    size_t n = s[0] >= 0xf0 ? 4 : s[0] >= 0xe0 ? 3 : 2;
    if (s[0] < 0xc2 || s[0] > 0xf4)
        return 0;
    for (size_t i = 1; i < n; i++)
        if ((s[i] & 0xc0) != 0x80)
            return 0;
    bool overlong = (s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xf0 && s[1] < 0x90);
    bool outside = (s[0] == 0xed && s[1] > 0x9f) || (s[0] == 0xf4 && s[1] > 0x8f);
    return overlong || outside ? 0 : n;
}

/* A text of whoever: bytes that are no UTF-8 become '?'. */
static json_t *readable(const char *text)
{
    size_t n = strlen(text), k;
    char *copy = malloc(n + 1);
    if (!copy)
        return NULL;
    memcpy(copy, text, n + 1);
    for (size_t i = 0; i < n; i += k) {
        k = character((unsigned char *)copy + i);
        if (!k) {
            copy[i] = '?';
            k = 1;
        }
    }
    json_t *j = json_stringn(copy, n);
    free(copy);
    return j;
}

/* ---- shapes ---- */

typedef struct kind {
    int status;
    const char *name;
} kind;

static const char *kind_of(const kind *kinds, size_t n, int status, const char *server,
                           const char *client)
{
    for (size_t i = 0; i < n; i++)
        if (kinds[i].status == status)
            return kinds[i].name;
    return status >= 500 ? server : client;
}

static json_t *openai(int status, const char *code, const char *param, json_t *message)
{
    static const kind kinds[] = {{401, "authentication_error"}, {403, "permission_error"},
                                 {404, "not_found_error"},      {408, "timeout_error"},
                                 {429, "rate_limit_error"},     {503, "overloaded_error"},
                                 {504, "timeout_error"}};
    const char *type = kind_of(kinds, sizeof kinds / sizeof *kinds, status, "server_error",
                               "invalid_request_error");
    return json_pack("{s:{s:o, s:s, s:s?, s:s}}", "error", "message", message, "type", type,
                     "param", param, "code", code);
}

static json_t *anthropic(int status, json_t *message, const char *id)
{
    static const kind kinds[] = {{401, "authentication_error"}, {403, "permission_error"},
                                 {404, "not_found_error"},      {408, "timeout_error"},
                                 {413, "request_too_large"},    {429, "rate_limit_error"},
                                 {503, "overloaded_error"},     {504, "timeout_error"}};
    const char *type =
        kind_of(kinds, sizeof kinds / sizeof *kinds, status, "api_error", "invalid_request_error");
    return json_pack("{s:s, s:{s:s, s:o}, s:s}", "type", "error", "error", "type", type, "message",
                     message, "request_id", id);
}

/* What the other APIs call by other names. */
static const char *native_name(const char *code)
{
    static const char *const names[][2] = {{"invalid_value", "INVALID_FIELD_VALUE"},
                                           {"unsupported_value", "INVALID_FIELD_VALUE"},
                                           {"context_length_exceeded", "PROMPT_TOO_LONG"}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(code, names[i][0]) == 0)
            return names[i][1];
    return code;
}

/* "missing_field" as MISSING_FIELD. */
static json_t *native(const char *code, const char *param, json_t *message, const char *id)
{
    char upper[64];
    size_t n = 0;
    code = native_name(code);
    for (; code[n] && n + 1 < sizeof upper; n++)
        upper[n] = (char)toupper((unsigned char)code[n]);
    upper[n] = '\0';
    json_t *details = param ? json_pack("{s:s}", "field", param) : json_null();
    return json_pack("{s:o, s:s, s:s, s:o}", "error", message, "error_code", upper, "request_id",
                     id, "details", details);
}

json_t *srv_error_json(srv_api api, int status, const char *code, const char *param,
                       const char *message, const char *request_id)
{
    json_t *text = readable(message);
    if (!text)
        return NULL;
    switch (api) {
    case SRV_OPENAI:
        return openai(status, code, param, text);
    case SRV_ANTHROPIC:
        return anthropic(status, text, request_id);
    case SRV_OLLAMA:
        return json_pack("{s:o}", "error", text);
    default:
        return native(code, param, text, request_id);
    }
}
