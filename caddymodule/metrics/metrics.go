// Package metrics owns the Prometheus metrics of the gateway: their names and labels.
//
// [Metrics] are the counters that calls and log-ins write, by route ([Route]). The
// services of an open store have their own counters, which a scrape reads from a
// [Source]. The package may import the services below internal, but not Caddy.
package metrics

import (
	"errors"
	"iter"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/caddy-modelgate/modelgate/internal/billing"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/usage"
	"github.com/caddy-modelgate/modelgate/money"
)

// Metrics are the collectors of this process. They are created once and registered with
// the registry of each configuration. Their labels come from the code and from the
// configuration, never from a request: no label is a key, a user or a model name.
type Metrics struct {
	requests   *prometheus.CounterVec
	duration   *prometheus.HistogramVec
	firstChunk *prometheus.HistogramVec
	tokens     *prometheus.CounterVec
	inFlight   *prometheus.GaugeVec
	refusals   *prometheus.CounterVec
	spend      *prometheus.CounterVec
	lost       *prometheus.CounterVec
	cut        *prometheus.CounterVec
	fallbacks  *prometheus.CounterVec
	auth       *prometheus.CounterVec
	orders     *prometheus.CounterVec
	notices    *prometheus.CounterVec
	reserve    *prometheus.HistogramVec
}

var makeMetrics = sync.OnceValue(func() *Metrics {
	const namespace = "modelgate"
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help}, labels)
	}
	seconds := func(name, help string, labels ...string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: namespace, Name: name, Help: help,
			Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600},
		}, labels)
	}
	return &Metrics{
		requests:   counter("requests_total", "Ended model calls that the gateway forwarded to a backend.", "route", "ended", "usage"),
		duration:   seconds("request_duration_seconds", "Time from the headers of a model call to the end of its answer.", "route"),
		firstChunk: seconds("first_chunk_seconds", "Time from the headers of a model call to the first byte of its answer.", "route"),
		tokens:     counter("tokens_total", "Charged tokens of model calls, by kind.", "route", "kind"),
		refusals:   counter("refusals_total", "Calls that the gateway refused without a backend, by error code.", "route", "code"),
		spend:      counter("spend_total", "Charges of calls, in units of the currency.", "route"),
		lost:       counter("uncollected_total", "Costs of calls that users were not charged: the operator's loss, in units of the currency.", "route"),
		cut:        counter("usage_cut_total", "Calls whose backend reported more usage than a call can have.", "route"),
		fallbacks:  counter("fallbacks_total", "Attempts of calls that failed, after which another model was called, by failure.", "route", "failure"),
		auth:       counter("auth_events_total", "Log-ins, registrations and proofs of identity, by outcome.", "event", "outcome"),
		orders:     counter("payment_orders_total", "Requests for an order at a payment service, by result.", "provider", "result"),
		notices:    counter("payment_notices_total", "Notices of payment services, by result.", "provider", "result"),
		reserve: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: namespace, Name: "reserve_seconds", Help: "Time that calls wait until their money is reserved in a store that several gateways share.",
			Buckets: []float64{.001, .002, .004, .008, .016, .032, .064, .125, .25, .5, 1, 2, 5},
		}, []string{"store"}),
		inFlight: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: namespace, Name: "in_flight", Help: "Model calls in flight.",
		}, []string{"route"}),
	}
})

// Provide registers the collectors with a configuration's registry. At each scrape,
// sources yields the services of the open stores by their keys. The version and the
// commit are those of the program.
func Provide(registry *prometheus.Registry, version, commit string, sources iter.Seq2[string, Source]) (*Metrics, error) {
	m := makeMetrics()
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "modelgate_build_info", Help: "1; the labels are those of the running program.",
		ConstLabels: prometheus.Labels{"version": version, "commit": commit},
	})
	build.Set(1)
	for _, c := range []prometheus.Collector{build, m.requests, m.duration, m.firstChunk, m.tokens, m.inFlight, m.refusals, m.spend, m.lost, m.cut, m.fallbacks, m.auth, m.orders, m.notices, m.reserve, collector{sources}} {
		var already prometheus.AlreadyRegisteredError
		if err := registry.Register(c); err != nil && !errors.As(err, &already) {
			return nil, err
		}
	}
	return m, nil
}

// OnReserve returns a function that observes how long a reservation in a store took.
func (m *Metrics) OnReserve(store string) func(took time.Duration) {
	reserve := m.reserve.WithLabelValues(store)
	return func(took time.Duration) { reserve.Observe(took.Seconds()) }
}

// Route has the metrics of one route.
type Route struct {
	route    string
	all      *Metrics
	InFlight prometheus.Gauge

	complete   prometheus.Counter // of requests that are complete with reported usage, the common case
	duration   prometheus.Observer
	firstChunk prometheus.Observer
	tokens     [usage.Kinds]prometheus.Counter
	spend      prometheus.Counter
}

// The values of labels, so that each counter exists from the start. If a counter appeared
// with its first increment, a query of its increase would miss that increment.
var (
	endings  = []usage.Ended{usage.Complete, usage.ClientGone, usage.Timeout, usage.UpstreamError, usage.MoneyOut, usage.Refused}
	bases    = []usage.Basis{usage.None, usage.Reported, usage.Estimated}
	failures = []string{"dial", "timeout", "broken", "4xx", "5xx"}
	outcomes = []string{"success", "failure", "limited", "error"}
	refusals = []fault.Code{
		fault.InvalidJSON, fault.InvalidParameter, fault.MissingParameter, fault.UnpricedOption, fault.Unauthorized,
		fault.InsufficientQuota, fault.InsufficientKeyQuota, fault.Forbidden, fault.ModelNotFound, fault.MethodNotAllowed,
		fault.RequestTimeout, fault.PayloadTooLarge, fault.UnsupportedMediaType, fault.RateLimited, fault.Internal,
		fault.UpstreamUnavailable, fault.StoreUnavailable, fault.Overloaded, fault.UpstreamTimeout,
	}
)

// Route returns the metrics of a route.
func (m *Metrics) Route(name string) *Route {
	for _, ended := range endings {
		for _, basis := range bases {
			m.requests.WithLabelValues(name, string(ended), string(basis))
		}
	}
	for _, code := range refusals {
		m.refusals.WithLabelValues(name, string(code))
	}
	for _, failure := range failures {
		m.fallbacks.WithLabelValues(name, failure)
	}
	m.lost.WithLabelValues(name)
	m.cut.WithLabelValues(name)
	r := &Route{
		route:      name,
		all:        m,
		InFlight:   m.inFlight.WithLabelValues(name),
		complete:   m.requests.WithLabelValues(name, string(usage.Complete), string(usage.Reported)),
		duration:   m.duration.WithLabelValues(name),
		firstChunk: m.firstChunk.WithLabelValues(name),
		spend:      m.spend.WithLabelValues(name),
	}
	for kind := range usage.Kinds {
		r.tokens[kind] = m.tokens.WithLabelValues(name, usage.KindName(kind))
	}
	return r
}

// Refused counts a call that the gateway refused without a backend.
func (r *Route) Refused(code string) {
	r.all.refusals.WithLabelValues(r.route, code).Inc()
}

// Ended counts a call that the gateway forwarded to a backend. firstChunk is zero if no
// byte of an answer arrived.
func (r *Route) Ended(ended usage.Ended, basis usage.Basis, firstChunk, total time.Duration, tokens usage.Tokens) {
	if ended == usage.Complete && basis == usage.Reported {
		r.complete.Inc()
	} else {
		r.all.requests.WithLabelValues(r.route, string(ended), string(basis)).Inc()
	}
	r.duration.Observe(total.Seconds())
	if firstChunk > 0 {
		r.firstChunk.Observe(firstChunk.Seconds())
	}
	for kind, n := range tokens.ByKind() {
		if n > 0 {
			r.tokens[kind].Add(float64(n))
		}
	}
}

// Charged counts the charge of a call, the part of its cost that could not be collected, and
// whether its usage was cut.
func (r *Route) Charged(charged, lost money.Amount, cut bool) {
	if charged > 0 {
		r.spend.Add(units(charged))
	}
	if lost > 0 {
		r.all.lost.WithLabelValues(r.route).Add(units(lost))
	}
	if cut {
		r.all.cut.WithLabelValues(r.route).Inc()
	}
}

// FellBack counts an attempt that failed, after which another model is called. The failure is dial,
// timeout or broken, or the status of the backend, such as 429.
func (r *Route) FellBack(failure string) {
	if failure[0] <= '9' {
		failure = failure[:1] + "xx"
	}
	r.all.fallbacks.WithLabelValues(r.route, failure).Inc()
}

// AuthEvent creates the counters of an event of [Metrics.Auth], at zero.
func (m *Metrics) AuthEvent(event string) {
	for _, outcome := range outcomes {
		m.auth.WithLabelValues(event, outcome)
	}
}

// Auth counts a log-in, a registration or a proof of identity. The outcomes are success,
// failure (of the user), limited (too many attempts) and error (of the gateway).
func (m *Metrics) Auth(event string, refused *fault.Fault) {
	outcome := "success"
	if refused != nil {
		switch status := refused.Status(); {
		case status == http.StatusTooManyRequests:
			outcome = "limited"
		case status >= http.StatusInternalServerError:
			outcome = "error"
		default:
			outcome = "failure"
		}
	}
	m.auth.WithLabelValues(event, outcome).Inc()
}

// The results of notices that package billing does not see.
const (
	NoticeRefused billing.Result = "refused" // its signature or its time is wrong
	NoticeFailed  billing.Result = "error"   // the gateway could not record it
)

// The results of requests for an order.
const (
	orderOpened   = "opened"
	orderReplayed = "replayed"
	orderRefused  = "refused"
	orderFailed   = "error" // the service did not open it, or the store failed
)

// Payments creates the counters of a payment service, at zero.
func (m *Metrics) Payments(provider string) {
	for _, result := range []string{orderOpened, orderReplayed, orderRefused, orderFailed} {
		m.orders.WithLabelValues(provider, result)
	}
	for _, result := range []billing.Result{billing.Applied, billing.Repeated, billing.Ignored, billing.Mismatched, NoticeRefused, NoticeFailed} {
		m.notices.WithLabelValues(provider, string(result))
	}
}

// Order counts a request for an order at a payment service.
func (m *Metrics) Order(provider string, replayed bool, f *fault.Fault) {
	result := orderOpened
	switch {
	case f != nil && f.Status() >= http.StatusInternalServerError:
		result = orderFailed
	case f != nil:
		result = orderRefused
	case replayed:
		result = orderReplayed
	}
	m.orders.WithLabelValues(provider, result).Inc()
}

// Notice counts a notice of a payment service.
func (m *Metrics) Notice(provider string, result billing.Result) {
	m.notices.WithLabelValues(provider, string(result)).Inc()
}

// units returns an amount in units of the currency. Prometheus has only floats: metrics
// are for graphs and alerts, the ledger is for exact sums.
func units(a money.Amount) float64 { return float64(a) / float64(money.Unit) }
