package task

import (
	"github.com/caddy-modelgate/modelgate/backends"
	"github.com/caddy-modelgate/modelgate/internal/task/callback"
	"github.com/caddy-modelgate/modelgate/internal/task/record"
	"github.com/caddy-modelgate/modelgate/internal/task/transition"
)

// The types of packages below that are part of the API of the engine.
type (
	Task     = record.Task
	Detail   = record.Detail
	Result   = record.Result
	Error    = record.Error
	State    = record.State
	Delivery = record.Delivery
	Owner    = record.Owner

	VideoRequest = record.VideoRequest

	Job = backends.Job

	Callback          = callback.Callback
	CallbackState     = record.CallbackState
	CallbackAddresses = callback.Addresses
	Address           = callback.Address
)

// The states of a task, of its delivery and of its callback.
const (
	Queued     = record.Queued
	InProgress = record.InProgress
	Success    = record.Success
	Failed     = record.Failed
	Pending    = record.Pending

	None     = record.None
	Accepted = record.Accepted

	Undelivered = record.Undelivered
	Delivered   = record.Delivered
	Dead        = record.Dead
)

// SessionWindow is how long a session id is in use.
const SessionWindow = transition.SessionWindow

// Anyone is the owner for operators, OfKey for callers, OfUser for the console.
var (
	Anyone = record.Anyone
	OfKey  = record.OfKey
	OfUser = record.OfUser
)

// OfCallback returns the id of the task of a callback id. It returns any other text unchanged.
var OfCallback = callback.TaskOf
