package server

import (
	"net/http"

	"github.com/idemstore/idemstore/internal/idem"
)

// code is the one word of an answer. Those of commands are idem's; the rest are of the way there.
type code = idem.Code

const (
	codeInvalidRequest       code = "invalid_request"
	codeUnauthenticated      code = "unauthenticated"
	codeForbidden            code = "forbidden"
	codeNoSuchRoute          code = "no_such_route"
	codeMethodNotAllowed     code = "method_not_allowed"
	codeBodyTooLarge         code = "body_too_large"
	codeUnsupportedMediaType code = "unsupported_media_type"
	codeTooManyRequests      code = "too_many_requests"
	codeInternal             code = "internal"
	codeUnavailable          code = "unavailable"
)

// page is what a problem is in HTTP, and what its page of documentation says: what happened, and what to do next.
type page struct {
	status int
	title  string
	means  string
	todo   string
}

// pages has every code of a problem. It is the one place where a code meets its status.
var pages = map[code]page{
	codeInvalidRequest: {
		http.StatusBadRequest, "The request cannot be understood",
		"A field is missing, unknown, repeated, written in another letter case, of a wrong type or out of its limits. field names it; nothing was done.",
		"Correct the field and send the request again. Repeating it unchanged gives the same answer.",
	},
	codeUnauthenticated: {
		http.StatusUnauthorized, "No valid token",
		"The request has no Authorization: Bearer header, or its token is not known.",
		"Send the token that your operator made with idemstore token new. A token whose line was taken out of the tokens file is not known any more.",
	},
	codeForbidden: {
		http.StatusForbidden, "The token does not allow this",
		"The token is known, but has none of the roles that this call needs.",
		"Use a token with the role that detail names, or have the operator add the role to the token's line.",
	},
	idem.CodeNotFound: {
		http.StatusNotFound, "Nothing is known of this key",
		"The key was never reserved, its retention has ended, or (for replay) the next reserve would be granted.",
		"Before a side effect: reserve. After one: the response that was offered is kept as evidence; reserve the key anew and record it.",
	},
	codeNoSuchRoute: {
		http.StatusNotFound, "No such route",
		"The path is none of this service's. It says nothing about any key.",
		"Compare the path with /openapi.yaml. A slash in a task_id is not allowed.",
	},
	codeMethodNotAllowed: {
		http.StatusMethodNotAllowed, "The route does not have this method",
		"The path is right, the method is not.",
		"Use one of the methods in the Allow header.",
	},
	idem.CodeInProgress: {
		http.StatusConflict, "Another holds a live lease",
		"A holder has reserved the key and its lease has not ended: its side effect may be happening now.",
		"Perform nothing, and report neither completion nor failure to the engine. Ask again after Retry-After seconds, or reserve with wait_seconds.",
	},
	idem.CodeInDoubt: {
		http.StatusConflict, "Nobody knows whether the side effect happened",
		"A holder's lease passed after it may have acted, and it has neither recorded nor released. The key is in doubt.",
		"Perform nothing, and report neither completion nor failure to the engine. Look into it (ask the upstream by a natural key); then reserve again with the takeovers of this answer, and record what happened or do it. Where takeovers_left is 0 only an operator can resolve it. An operator who is told this at resolve looks at the entry again, and resolves it with its fence.",
	},
	idem.CodeAlreadyRecorded: {
		http.StatusConflict, "A response is recorded already",
		"The key has its response, and it is another one than yours or was recorded by another. The first record wins; what you offered is kept as evidence.",
		"Perform nothing more. Use the response in this answer, or replay it, as the result of the task. If your side effect happened too, tell the operator: it happened twice.",
	},
	idem.CodeLeaseLost: {
		http.StatusConflict, "The reservation no longer holds",
		"This reservation was granted once, but has been released or superseded by another grant.",
		"Begin no side effect under it. Reserve again with a fresh reservation_id. A response that was offered is kept as evidence.",
	},
	idem.CodeNotHolder: {
		http.StatusConflict, "This reservation was never granted here",
		"The reservation_id is not known to have been granted in this life of the key.",
		"Check that the reservation_id, the task_id and the attempt belong together. A response that was offered is kept as evidence.",
	},
	codeBodyTooLarge: {
		http.StatusRequestEntityTooLarge, "Too large",
		"The request, or the response that it carries, is over the limit that detail names.",
		"Record with body_omitted: true, body_sha256 and body_size in the body's place, or send smaller batches.",
	},
	codeUnsupportedMediaType: {
		http.StatusUnsupportedMediaType, "Send application/json",
		"The body does not say that it is JSON.",
		"Send the header Content-Type: application/json.",
	},
	idem.CodeRequestMismatch: {
		http.StatusUnprocessableEntity, "The request is another one",
		"The request_hash differs from the one under which the key was reserved: the same task is about to do something else.",
		"Perform nothing. Find out why the same task and attempt make two different requests: most often something that changes on each delivery is part of the request.",
	},
	codeTooManyRequests: {
		http.StatusTooManyRequests, "More is waiting than can be served",
		"The queue is full. Nothing was begun.",
		"Send the same request again after Retry-After seconds.",
	},
	codeInternal: {
		http.StatusInternalServerError, "A fault of the service",
		"Something went wrong that should not have. The log has it under this request_id.",
		"Repeat the call with the same reservation_id, and report the request_id to your operator.",
	},
	codeUnavailable: {
		http.StatusServiceUnavailable, "The outcome is not known",
		"The database did not confirm, or the service is shutting down. The call may or may not have taken effect.",
		"Send the very same request, with the same reservation_id, after Retry-After seconds: repeating converges. Begin no side effect before a 201.",
	},
}
