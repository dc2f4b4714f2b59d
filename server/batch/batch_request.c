/* batch_request.c - see batch_request.h. */
#include "batch/batch_request.h"

#include <stdio.h>
#include <string.h>

#include "http/json_limits.h"
#include "http/short_memory.h"

enum { MAX_VALUES = 262144 };

/* ---- lines of IN ---- */

/* The server reads bodies itself and refuses what it does not read. A number that is too large is
 * refused here: as a real it would be another one, but with it the custom_id is read. */
static json_t *load_line(const char *line, size_t n, bool *too_large)
{
    const size_t flags = JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL;
    json_error_t e;
    json_t *request = srv_json_load(line, n, flags, &e);
    *too_large =
        !request && !srv_memory_short() && json_error_code(&e) == json_error_numeric_overflow;
    return *too_large ? srv_json_load(line, n, flags | JSON_DECODE_INT_AS_REAL, NULL) : request;
}

/* NULL: it is no text, or one with U+0000 in it. */
static const char *plain_text(const json_t *value)
{
    const char *text = json_string_value(value);
    return text && strlen(text) == json_string_length(value) ? text : NULL;
}

void srv_batch_line_read(srv_batch_line *job, const char *line, size_t n, size_t max_depth)
{
    if (job->line == 1 && n >= 3 && memcmp(line, "\xef\xbb\xbf", 3) == 0) { /* some editors' mark */
        line += 3;
        n -= 3;
    }
    srv_json_cost cost = srv_json_measure(line, n);
    job->too_complex = cost.depth > max_depth + 1 || cost.n_values > MAX_VALUES;
    if (job->too_complex)
        return;
    job->request = load_line(line, n, &job->too_large);
    job->custom_id = plain_text(json_object_get(job->request, "custom_id"));
}

const char *srv_batch_line_fault(const srv_batch_line *job)
{
    static const char *const urls[] = {"/v1/chat/completions", "/v1/completions", "/v1/embeddings"};
    const json_t *body = json_object_get(job->request, "body");
    const char *method = plain_text(json_object_get(job->request, "method"));
    const char *url = plain_text(json_object_get(job->request, "url"));
    bool known = false;
    for (size_t i = 0; url && i < sizeof urls / sizeof *urls; i++)
        known |= strcmp(url, urls[i]) == 0;
    if (job->too_long)
        return "the line is longer than a request may be (--max-body)";
    if (job->too_complex)
        return "the line nests too deep or has too many values";
    if (job->too_large)
        return "the line has a number that is too large; a whole one has at most 64 bits";
    if (!json_is_object(job->request))
        return "the line is not a JSON object";
    if (!job->custom_id || !*job->custom_id)
        return "custom_id must be a text, not empty and without U+0000";
    if (!method || strcmp(method, "POST") != 0)
        return "method must be \"POST\"";
    if (!known)
        return "url must be /v1/chat/completions, /v1/completions or /v1/embeddings";
    if (!json_is_object(body))
        return "body must be a JSON object";
    if (json_is_true(json_object_get(body, "stream")))
        return "body.stream: a batch has no streams; leave it out";
    return NULL;
}

/* ---- lines of OUT ---- */

static json_t *result_json(const srv_batch_line *job, json_t *response, json_t *error)
{
    char id[48];
    snprintf(id, sizeof id, "batch_req_%zu", job->line);
    return json_pack("{s:s, s:s?, s:o?, s:o?}", "id", id, "custom_id", job->custom_id, "response",
                     response, "error", error);
}

json_t *srv_batch_refusal(const srv_batch_line *job, const char *why)
{
    char message[256];
    snprintf(message, sizeof message, "line %zu: %s", job->line, why);
    return result_json(job, NULL,
                       json_pack("{s:s, s:s}", "code", "invalid_request", "message", message));
}

json_t *srv_batch_answer(const srv_batch_line *job, const srv_local_reply *reply)
{
    const size_t flags = JSON_DECODE_ANY | JSON_ALLOW_NUL; /* a model may write any character */
    json_t *body = srv_json_load(reply->body, reply->n_body, flags, NULL);
    if (!body) /* without it the line is not answered */
        return NULL;
    return result_json(job,
                       json_pack("{s:i, s:s, s:o}", "status_code", reply->status, "request_id",
                                 reply->request_id, "body", body),
                       NULL);
}
