package call

import (
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
)

// delivery records whether a backend has received the body of a call. A trip is one
// request to a backend. If the operator's routes retry, a call makes several trips.
// The fields with a bit per trip may be used concurrently.
type delivery struct {
	trips    uint // the number of trips that have begun
	before   uint // those of earlier attempts of a call with fallbacks
	tried    bool // a trip of this attempt has begun
	answered int  // the status of the answer to the last trip of this attempt; 0: none

	connected atomic.Uint32 // a bit per trip: it has a connection, on which the body is written
	written   atomic.Uint32 // a bit per trip: the whole body was written
	refused   atomic.Uint32 // a bit per trip: the answer had an error status
	failed    atomic.Uint32 // a bit per trip: there is no answer
	awaited   atomic.Bool   // the call wants to know when the body was written, or cannot be
}

// beginTrip records a trip that req makes. It returns the request to send instead, and
// the bit of the trip. All trips from the 32nd on share one bit.
//
// The transports of net/http, HTTP/2 and HTTP/3 report through an httptrace that they
// have a connection and that they have written the body. beginTrip extends the trace that
// reverse_proxy puts into the context of each trip. A second trace would be composed
// with it by reflection, and a wrapped body would be sent in a separate write.
func (c *call) beginTrip(req *http.Request) (_ *http.Request, trip uint32) {
	d := &c.delivery
	trip = d.next()
	trace := httptrace.ContextClientTrace(req.Context())
	if trace == nil {
		trace = new(httptrace.ClientTrace)
		req = req.WithContext(httptrace.WithClientTrace(req.Context(), trace))
	}
	gotConn, wrote := trace.GotConn, trace.WroteRequest
	// Without these headers, net/http takes another connection only if nothing was sent on the one before.
	again := req.Header["Idempotency-Key"] == nil && req.Header["X-Idempotency-Key"] == nil && d.trips < 32
	trace.GotConn = func(info httptrace.GotConnInfo) {
		d.connected.Or(trip)
		if again {
			d.written.And(^trip)
		}
		if gotConn != nil {
			gotConn(info)
		}
	}
	trace.WroteRequest = func(info httptrace.WroteRequestInfo) {
		if info.Err == nil {
			d.written.Or(trip)
			if d.awaited.Load() {
				c.deliveryEnded()
			}
		}
		if wrote != nil {
			wrote(info)
		}
	}
	return req, trip
}

// endTrip records the end of a trip: an answer, or nil for a failure.
func (c *call) endTrip(trip uint32, resp *http.Response) {
	d := &c.delivery
	switch {
	case resp == nil:
		d.failed.Or(trip)
	case resp.StatusCode >= http.StatusMultipleChoices:
		d.answered = resp.StatusCode
		d.refused.Or(trip)
	default:
		d.answered = resp.StatusCode
		return
	}
	if d.awaited.Load() {
		c.deliveryEnded()
	}
}

// next returns the bit of the next trip.
func (d *delivery) next() (trip uint32) {
	trip = 1 << min(d.trips, 31)
	d.trips++
	d.tried, d.answered = true, 0
	return trip
}

// restart forgets the trips of an attempt that failed.
func (d *delivery) restart() { d.before, d.tried, d.answered = d.trips, false, 0 }

// Delivered records that a handler that answers calls itself, such as modelgate_demo, has
// received the body. The call is then charged if the caller disconnects, as with a backend. The
// handler finds the call in the request variable [callVar].
func (c *call) Delivered() { c.delivery.written.Or(c.delivery.next()) }

// done reports whether a backend has received the body in this attempt and has not refused it.
func (d *delivery) done() bool {
	return d.written.Load()&^d.refused.Load()>>min(d.before, 31) != 0
}

// await reports whether a backend is receiving the body. Then [call.deliveryEnded] is called when it has it,
// or cannot get it.
func (d *delivery) await() bool {
	d.awaited.Store(true) // before the read of written and failed: otherwise their end could be missed
	return d.connected.Load()&^(d.written.Load()|d.refused.Load()|d.failed.Load()) != 0
}
