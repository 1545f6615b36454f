package task

import (
	"github.com/caddy-modelgate/modelgate/internal/task/callback"
	"github.com/caddy-modelgate/modelgate/internal/task/record"
	"github.com/caddy-modelgate/modelgate/internal/task/transition"
)

// What callers of the engine see of the packages below it.
type (
	Task     = record.Task
	Detail   = record.Detail
	Result   = record.Result
	Error    = record.Error
	State    = record.State
	Delivery = record.Delivery
	Owner    = record.Owner

	Callback          = callback.Callback
	CallbackState     = record.CallbackState
	CallbackAddresses = callback.Addresses
	Address           = callback.Address
)

// The states of a task, the places of its job, and the states of its callback.
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

// The owners: Anyone is for operators, OfKey for callers, OfUser for the console.
var (
	Anyone = record.Anyone
	OfKey  = record.OfKey
	OfUser = record.OfUser
)

// OfCallback returns the task whose callback has this id; what is no such id as it is.
var OfCallback = callback.TaskOf
