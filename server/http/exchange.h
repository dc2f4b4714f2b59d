/* exchange.h - one request and its reply, as the code of an API sees them. HTTP itself is behind
 * it (http.c).
 *
 * A handler runs on a thread of its own and may block. It must reply exactly once: by one of
 * srv_reply_*, by srv_fail, or by srv_stream_begin .. srv_stream_end. A handler that returns
 * without a reply is answered with 500, and the log says which route that was. */
#ifndef SRV_EXCHANGE_H
#define SRV_EXCHANGE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bitnet.h"

typedef struct srv_exchange srv_exchange;
typedef struct srv_server srv_server; /* everything that lives as long as the process */

/* In whose words errors are told. */
typedef enum srv_api { SRV_NATIVE, SRV_OPENAI, SRV_ANTHROPIC, SRV_OLLAMA } srv_api;

/* ---- what was asked ---- */

srv_server *srv_server_of(const srv_exchange *x);
const char *srv_request_id(const srv_exchange *x); /* "req_..."; also sent as x-request-id */
/* The path's {name} part, decoded; "" if the route has none. */
const char *srv_path_part(const srv_exchange *x);
const char *srv_query(const srv_exchange *x, const char *name);  /* NULL: absent */
const char *srv_header(const srv_exchange *x, const char *name); /* NULL: absent */
/* Whose prefixes the request may reuse: one number for each API key, the same one for all requests
 * where prefixes are shared. */
uint64_t srv_scope(const srv_exchange *x);
/* The body as a JSON object, borrowed, within the limits on depth and elements. NULL: it is none,
 * and srv_fail has told the client why. */
json_t *srv_body_json(srv_exchange *x);
/* Whether a text of JSON inside the body, of this field, may become a tree too: the bounds of the
 * body hold for it, and its values are counted among those of all requests until the exchange is
 * over. False: the client has been told. */
bool srv_json_admit(srv_exchange *x, const char *field, const char *text, size_t n);
/* The client has gone, the deadline has passed, or the server must end now: stop working. Cheap. */
bool srv_gone(const srv_exchange *x);
/* The same as a bitnet_cancel_fn. */
bool srv_gone_fn(void *exchange);
/* Milliseconds until the request's deadline; INFINITY without one. */
double srv_time_left(const srv_exchange *x);
/* What the answer took, for the log's line about the request. */
void srv_count_tokens(srv_exchange *x, size_t n_prompt, size_t n_generated);

/* ---- the reply ---- */

/* Adds a header to the reply that follows; both texts are copied. */
void srv_reply_header(srv_exchange *x, const char *name, const char *value);
/* Replies with a JSON value, which is taken over and may be NULL. Where it is, or where there was
 * no memory for all of its parts, the reply is 503. */
void srv_reply_json(srv_exchange *x, int status, json_t *value);
/* Replies with bytes, which are copied. */
void srv_reply_bytes(srv_exchange *x, int status, const char *content_type, const void *bytes,
                     size_t n_bytes);
/* Replies with an error in the shape of the route's API. `code` is a short name
 * ("context_length_exceeded"); `param` the field at fault, or NULL. 429 and 503 get a Retry-After.
 */
void srv_fail(srv_exchange *x, int status, const char *code, const char *param, const char *format,
              ...) BITNET_PRINTF(5, 6);
/* The same from an error of the library: ARGUMENT and CONTEXT 400, NOT_AVAILABLE 404 (no such
 * model), MEMORY and AGAIN 503, CANCELLED 499 (the client went), 408 (the time is over that the
 * request gave itself), 504 (that the server gives it) or 503 (the server ends), others 500 without
 * file names. */
void srv_fail_with(srv_exchange *x, const bitnet_error *err);
/* Is the error that the time of the request, or of the server for it, is over? */
bool srv_is_timeout(const srv_exchange *x, const bitnet_error *err);
/* Counts so much of a reply that is gathered in memory among what all requests hold. On failure:
 * ARGUMENT, one reply may not have so much; AGAIN, there is no room for it now. */
bitnet_status srv_reply_charge(srv_exchange *x, size_t n_bytes, bitnet_error *err);
/* So much of what was charged has been sent and is no longer held. */
void srv_reply_sent(srv_exchange *x, size_t n_bytes);
/* Counts memory that is needed for a while, until _done is told what this returned, among what all
 * requests hold. 0: there is no room for it now, the client has been told. */
size_t srv_work_charge(srv_exchange *x, size_t n_bytes);
void srv_work_done(srv_exchange *x, size_t n_bytes);
enum { SRV_NUMBER_BYTES = 48 }; /* of a number in a list, about */

/* A reply that comes in pieces. _begin sends status 200 and the headers. _write waits while the
 * client is slow, at most for the time a slow client is given, and not beyond the deadline or the
 * end of the server; false: stop. _end must follow _begin. An error after _begin is written by the
 * API itself as an event. */
#define SRV_EVENT_STREAM "text/event-stream; charset=utf-8"
void srv_stream_begin(srv_exchange *x, const char *content_type);
bool srv_stream_write(srv_exchange *x, const void *bytes, size_t n_bytes);
void srv_stream_end(srv_exchange *x);
/* While a stream gathers, what is written waits for srv_stream_flush: pieces that come together are
 * sent together. Nobody waits for the client then, and what is more than 4 MB is lost: the stream
 * is seen to be cut. */
void srv_stream_gather(srv_exchange *x, bool gathers);
/* Sends what was gathered, without waiting for the client. False: the client is behind, and the
 * next piece may have to wait for it. */
bool srv_stream_flush(srv_exchange *x);
/* The same, without sending anything. */
bool srv_stream_room(srv_exchange *x);
/* One server-sent event: "event: NAME\n" unless name is NULL, then "data: JSON\n\n". Takes `value`
 * over. NULL: there was no memory for it, and the stream is seen to be cut; false. */
bool srv_stream_event(srv_exchange *x, const char *name, json_t *value);

#endif
