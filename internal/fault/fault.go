// Package fault defines the errors that callers see. A [Fault] has a code, a
// message and the path of the invalid parameter. All packages return faults;
// internal/dialect writes them in the dialect of the caller. This package has the
// only table from codes to HTTP statuses. The package that returns a fault defines its
// English message; the Chinese messages are in chinese.go. Package fault imports no other
// package of this module.
package fault

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// Code is the machine-readable name of a kind of fault. All codes are in
// docs/reference/http.md#error-codes.
type Code string

// The codes.
const (
	InvalidJSON          Code = "INVALID_JSON"
	InvalidParameter     Code = "INVALID_PARAMETER"
	MissingParameter     Code = "MISSING_PARAMETER"
	InvalidModel         Code = "INVALID_MODEL"
	UnpricedOption       Code = "UNPRICED_OPTION"
	ModelNotFound        Code = "MODEL_NOT_FOUND"
	Unauthorized         Code = "UNAUTHORIZED"
	Forbidden            Code = "FORBIDDEN"
	RateLimited          Code = "RATE_LIMITED"
	PayloadTooLarge      Code = "PAYLOAD_TOO_LARGE"
	UnsupportedMediaType Code = "UNSUPPORTED_MEDIA_TYPE"
	RangeNotSatisfiable  Code = "RANGE_NOT_SATISFIABLE"
	MethodNotAllowed     Code = "METHOD_NOT_ALLOWED"
	UpgradeRequired      Code = "UPGRADE_REQUIRED"
	NotFound             Code = "NOT_FOUND"
	Gone                 Code = "GONE"
	Conflict             Code = "CONFLICT"
	RequestTimeout       Code = "REQUEST_TIMEOUT"
	UpstreamRejected     Code = "UPSTREAM_REJECTED"
	UpstreamUnavailable  Code = "UPSTREAM_UNAVAILABLE"
	UpstreamTimeout      Code = "UPSTREAM_TIMEOUT"
	StoreUnavailable     Code = "STORE_UNAVAILABLE"
	Overloaded           Code = "OVERLOADED"
	Internal             Code = "INTERNAL"

	InsufficientQuota     Code = "INSUFFICIENT_QUOTA"
	InsufficientKeyQuota  Code = "INSUFFICIENT_KEY_QUOTA"
	InsufficientBalance   Code = "INSUFFICIENT_BALANCE"
	NotLoggedIn           Code = "NOT_LOGGED_IN"
	CrossOrigin           Code = "CROSS_ORIGIN"
	PlanNotFound          Code = "PLAN_NOT_FOUND"
	PlanDisabled          Code = "PLAN_DISABLED"
	PlanNotFree           Code = "PLAN_NOT_FREE"
	PlanFree              Code = "PLAN_FREE"
	AlreadyClaimed        Code = "ALREADY_CLAIMED"
	PurchaseLimitReached  Code = "PURCHASE_LIMIT_REACHED"
	SubscriptionNotFound  Code = "SUBSCRIPTION_NOT_FOUND"
	SubscriptionCancelled Code = "SUBSCRIPTION_CANCELLED"
	IdempotencyKeyReused  Code = "IDEMPOTENCY_KEY_REUSED"
	ProviderNotFound      Code = "PROVIDER_NOT_FOUND"
	AmountOutOfRange      Code = "AMOUNT_OUT_OF_RANGE"

	SecondFactorRequired Code = "SECOND_FACTOR_REQUIRED"
	UserDisabled         Code = "USER_DISABLED"
	VerificationRequired Code = "VERIFICATION_REQUIRED"
	VerificationExpired  Code = "VERIFICATION_EXPIRED"
	VerificationFailed   Code = "VERIFICATION_FAILED"
	NoFactor             Code = "NO_FACTOR"
	PasskeyNotCompleted  Code = "PASSKEY_NOT_COMPLETED"
	TooManyAttempts      Code = "TOO_MANY_ATTEMPTS"

	TaskNotFound       Code = "TASK_NOT_FOUND"
	TaskNotCancellable Code = "TASK_NOT_CANCELLABLE"
	DuplicateSessionID Code = "DUPLICATE_SESSION_ID"
	TooManyTasks       Code = "TOO_MANY_TASKS"
)

// statuses has the HTTP status of each code.
var statuses = map[Code]int{
	InvalidJSON:          http.StatusBadRequest,
	InvalidParameter:     http.StatusBadRequest,
	MissingParameter:     http.StatusBadRequest,
	InvalidModel:         http.StatusBadRequest,
	UnpricedOption:       http.StatusBadRequest,
	ModelNotFound:        http.StatusNotFound,
	Unauthorized:         http.StatusUnauthorized,
	Forbidden:            http.StatusForbidden,
	RateLimited:          http.StatusTooManyRequests,
	PayloadTooLarge:      http.StatusRequestEntityTooLarge,
	UnsupportedMediaType: http.StatusUnsupportedMediaType,
	RangeNotSatisfiable:  http.StatusRequestedRangeNotSatisfiable,
	MethodNotAllowed:     http.StatusMethodNotAllowed,
	UpgradeRequired:      http.StatusUpgradeRequired,
	NotFound:             http.StatusNotFound,
	Gone:                 http.StatusGone,
	Conflict:             http.StatusConflict,
	RequestTimeout:       http.StatusRequestTimeout,
	UpstreamRejected:     http.StatusUnprocessableEntity,
	UpstreamUnavailable:  http.StatusServiceUnavailable,
	UpstreamTimeout:      http.StatusGatewayTimeout,
	StoreUnavailable:     http.StatusServiceUnavailable,
	Overloaded:           http.StatusServiceUnavailable,
	Internal:             http.StatusInternalServerError,

	InsufficientQuota:     http.StatusPaymentRequired,
	InsufficientKeyQuota:  http.StatusPaymentRequired,
	InsufficientBalance:   http.StatusPaymentRequired,
	NotLoggedIn:           http.StatusUnauthorized,
	CrossOrigin:           http.StatusForbidden,
	PlanNotFound:          http.StatusNotFound,
	PlanDisabled:          http.StatusConflict,
	PlanNotFree:           http.StatusConflict,
	PlanFree:              http.StatusConflict,
	AlreadyClaimed:        http.StatusConflict,
	PurchaseLimitReached:  http.StatusConflict,
	SubscriptionNotFound:  http.StatusNotFound,
	SubscriptionCancelled: http.StatusConflict,
	IdempotencyKeyReused:  http.StatusUnprocessableEntity,
	ProviderNotFound:      http.StatusNotFound,
	AmountOutOfRange:      http.StatusBadRequest,

	SecondFactorRequired: http.StatusUnauthorized,
	UserDisabled:         http.StatusForbidden,
	VerificationRequired: http.StatusForbidden,
	VerificationExpired:  http.StatusForbidden,
	VerificationFailed:   http.StatusForbidden,
	NoFactor:             http.StatusBadRequest,
	PasskeyNotCompleted:  http.StatusBadRequest,
	TooManyAttempts:      http.StatusTooManyRequests,

	TaskNotFound:       http.StatusNotFound,
	TaskNotCancellable: http.StatusConflict,
	DuplicateSessionID: http.StatusConflict,
	TooManyTasks:       http.StatusTooManyRequests,
}

// Fault is an error that the caller sees.
type Fault struct {
	// Code names the kind of fault.
	Code Code

	// Message says what is wrong and what is allowed. It contains no secret.
	Message string

	// Param is the path of the wrong field, such as "messages[0].role"; empty if there
	// is none.
	Param string

	// RetryAfter is how long the caller should wait; 0 if unknown.
	RetryAfter time.Duration

	// Allow lists the methods of the path, for METHOD_NOT_ALLOWED.
	Allow string

	// Complete is the size of the file in bytes, for RANGE_NOT_SATISFIABLE.
	Complete int64

	// Task is the id of the task that has the session id, for
	// DUPLICATE_SESSION_ID.
	Task string

	// ErrorCode is error.details.error_code in the anthropic dialect. SDKs react to it. Empty: none.
	ErrorCode string

	status int // replaces the status of the code; 0: the status of the code

	format string // of Message, for its Chinese form
	args   []any
}

// New returns a fault without a field.
func New(code Code, format string, args ...any) *Fault {
	return At(code, "", format, args...)
}

// At returns a fault about the field at the path param.
func At(code Code, param, format string, args ...any) *Fault {
	return &Fault{Code: code, Param: param, Message: fmt.Sprintf(format, args...), format: format, args: args}
}

// WithParam returns a copy of f about the field at the path param.
func (f *Fault) WithParam(param string) *Fault {
	g := *f
	g.Param = param
	return &g
}

// WithMessage returns a copy of f with this message and without a field.
func (f *Fault) WithMessage(message string) *Fault {
	g := *f
	g.Message, g.format, g.args, g.Param = message, message, nil, ""
	return &g
}

// After returns a copy of f with the RetryAfter d.
func (f *Fault) After(d time.Duration) *Fault {
	g := *f
	g.RetryAfter = d
	return &g
}

// WithStatus returns a copy of f with this HTTP status instead of the status of its code.
func (f *Fault) WithStatus(status int) *Fault {
	g := *f
	g.status = status
	return &g
}

// Error implements error.
func (f *Fault) Error() string {
	if f.Param == "" {
		return string(f.Code) + ": " + f.Message
	}
	return string(f.Code) + " (" + f.Param + "): " + f.Message
}

// Status returns the HTTP status of f: the one set by WithStatus, otherwise the one of its
// code, and 500 for an unknown code.
func (f *Fault) Status() int {
	if f.status != 0 {
		return f.status
	}
	if status, ok := statuses[f.Code]; ok {
		return status
	}
	return http.StatusInternalServerError
}

var errStoreUnavailable = New(StoreUnavailable, "the store does not answer").After(5 * time.Second)

// OfStore wraps an error of the store in STORE_UNAVAILABLE. It returns faults, context errors
// and nil unchanged.
func OfStore(err error) error {
	if _, ok := errors.AsType[*Fault](err); err == nil || ok || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return fmt.Errorf("%w: %w", errStoreUnavailable, err)
}

// OrInternal returns the fault in err. If err has none, it returns INTERNAL, whose message only
// has the request id. It returns nil for nil.
func OrInternal(err error, requestID string) *Fault {
	f, ok := errors.AsType[*Fault](err)
	if !ok && err != nil {
		f = New(Internal, "something went wrong; it has been logged under %s", requestID)
	}
	return f
}

// FromStore returns the fault in the error of an operation on the store, or STORE_UNAVAILABLE if
// there is none. err must not be nil.
func FromStore(err error) *Fault {
	if f, ok := errors.AsType[*Fault](err); ok {
		return f
	}
	return errStoreUnavailable
}
