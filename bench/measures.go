package main

import (
	"context"
	"time"

	"github.com/dustin/go-humanize"
)

// measure is a trial and the rows that are read from its samples. To add a
// measure, add a row to the table below.
type measure struct {
	name  string // for -only, and in file names of profiles
	trial trial
	rows  []row
}

// trial takes the samples of a measure.
type trial interface {
	// pair takes one sample of the reference and one of the gateway, both from
	// fresh processes.
	pair(ctx context.Context, b *bench, name string) (pair, error)
}

// sample is the result of one side.
type sample struct {
	Units        int64         // calls, events, streams, commits, purchases or entries
	CPU          time.Duration // CPU time of the gateway for these units
	Took         time.Duration // wall-clock time for these units
	SuccessDelay time.Duration // the part of Took after a poll reported success
	P50, P99     time.Duration // from the due time of a call to the end of its answer
	Resident     int64         // memory of the gateway at the end, in bytes
	Grown        int64         // growth of Resident
	Mapped       int64         // pages of mapped files, or their growth
	Own          int64         // all other memory, or its growth
	Weight       int64         // of a page of the console with its assets, in bytes
	Start        time.Duration // from the start of the process to its first answer
}

// pair has the samples of one trial: of the reference and of the gateway.
type pair [2]sample

// row is one line of the report.
type row struct {
	label     string
	figure    func(sample) float64
	unit      unit
	compare   comparison
	must, aim float64 // zero: no bound, the figures are only shown
	atLeast   bool    // must and aim are minimums
}

// comparison is how a figure of the gateway is compared.
type comparison uint8

const (
	ratio comparison = iota // as a multiple of the reference
	added                   // by its difference from the reference
	byItself
)

// unit is the unit in which a figure is printed.
type unit struct {
	name   string
	scale  float64
	digits int
}

var (
	perSecond    = unit{"/s", 1, 0}
	microseconds = unit{"µs", 1e3, 0}
	milliseconds = unit{"ms", 1e6, 0}
	seconds      = unit{"s", 1e9, 1}
	kibibytes    = unit{"KiB", 1 << 10, 0}
	mebibytes    = unit{"MiB", 1 << 20, 0}
	fine         = unit{"µs", 1e3, 1}
	percent      = unit{"%", 0.01, 1}
	times        = unit{"×", 1, 2}
)

// Figures of a sample.
var (
	perCPUSecond  = func(s sample) float64 { return float64(s.Units) / s.CPU.Seconds() }
	eachSecond    = func(s sample) float64 { return float64(s.Units) / s.Took.Seconds() }
	cpuEach       = func(s sample) float64 { return float64(s.CPU) / float64(s.Units) }
	took          = func(s sample) float64 { return float64(s.Took) }
	successDelay  = func(s sample) float64 { return float64(s.SuccessDelay) }
	medianLatency = func(s sample) float64 { return float64(s.P50) }
	tailLatency   = func(s sample) float64 { return float64(s.P99) }
	memory        = func(s sample) float64 { return float64(s.Resident) }
	memoryGrown   = func(s sample) float64 { return float64(s.Grown) }
	memoryOwn     = func(s sample) float64 { return float64(s.Own) }
	memoryMapped  = func(s sample) float64 { return float64(s.Mapped) }
	memoryEach    = func(s sample) float64 { return float64(s.Grown) / float64(s.Units) }
	share         = func(s sample) float64 { return float64(s.CPU) / float64(s.Took) }
	pageWeight    = func(s sample) float64 { return float64(s.Weight) }
	untilAnswer   = func(s sample) float64 { return float64(s.Start) }
)

// measures returns all measures in the order of the report. entries is the size
// of the ledger to verify, lasts the duration of the long load.
func measures(entries int64, lasts time.Duration) []measure {
	few, many := humanize.Comma(entries/10), humanize.Comma(entries)
	return []measure{
		{"json", underLoad{bare, gate, job{Kind: saturate, Connections: 64, Body: smallBody(false)}}, []row{
			{"Requests per CPU-second, 1 KB JSON, 64 connections", perCPUSecond, perSecond, ratio, 0.95, 1.03, true},
			{"Memory at saturation", memory, mebibytes, byItself, 200 << 20, 150 << 20, false},
			{"Start to first answer", untilAnswer, milliseconds, byItself, ms(500), ms(300), false},
		}},
		{"json-transport", underLoad{bare, gateOwn, job{Kind: saturate, Connections: 64, Body: smallBody(false)}}, []row{
			{"Requests per CPU-second with `transport modelgate`", perCPUSecond, perSecond, ratio, 1.05, 1.20, true},
		}},
		{"whole-transport", wholeProcess{bareSilent, gateOwn, job{Kind: saturate, Connections: 64, Body: smallBody(false)}}, []row{
			{"The same with `transport modelgate`, whole process, bare's log discarded", perCPUSecond, perSecond, ratio, 0.95, 1.10, true},
		}},
		{"whole", wholeProcess{bareSilent, gate, job{Kind: saturate, Connections: 64, Body: smallBody(false)}}, []row{
			{"The same, whole process until it is at rest, bare's log discarded", perCPUSecond, perSecond, ratio, 0.86, 1.00, true},
		}},
		{"lasting", lasting{gate, job{Kind: saturate, Connections: 64, Body: smallBody(false)}}, []row{
			{"Most memory in " + lasts.String() + " of saturation, `memory normal`, without pages of mapped files", memoryOwn, mebibytes, byItself, 300 << 20, 250 << 20, false},
			{label: "Pages of mapped files beside it at most", figure: memoryMapped, unit: mebibytes, compare: byItself},
			{"Latency p99 there in seconds with work on tables, beside those without", tailLatency, microseconds, ratio, 2, 1.5, false},
		}},
		{"lasting-small", lasting{gateSmall, job{Kind: saturate, Connections: 64, Body: smallBody(false)}}, []row{
			{"Most memory in " + lasts.String() + " of saturation, `memory small`, without pages of mapped files", memoryOwn, mebibytes, byItself, 180 << 20, 150 << 20, false},
			{label: "Pages of mapped files with `memory small` at most", figure: memoryMapped, unit: mebibytes, compare: byItself},
			{"Latency p99 with `memory small` in seconds with work on tables, beside those without", tailLatency, microseconds, ratio, 2, 1.5, false},
		}},
		{"latency", underLoad{bare, gate, job{Kind: paced, Connections: 64, Body: smallBody(false), Rate: 500}}, []row{
			{"Latency p50 at 500 requests/s", medianLatency, microseconds, added, ms(0.150), ms(0.060), false},
			{"Latency p99 at 500 requests/s", tailLatency, microseconds, ratio, 1.5, 1.2, false},
		}},
		{"streams", underLoad{bare, gate, job{Kind: streams, Connections: streamCount, Body: smallBody(true)}}, []row{
			{"CPU per event, 20 streams, one event each 5 ms", cpuEach, fine, ratio, 1.10, 1.00, false},
		}},
		{"idle", underLoad{bare, gate, job{Kind: idle, Connections: 1000, Body: smallBody(true)}}, []row{
			{"Memory per idle stream, 1000 of them", memoryEach, kibibytes, byItself, 100 << 10, 85 << 10, false},
		}},
		{"large", underLoad{bare, gate, job{Kind: saturate, Connections: 8, Body: largeBody(1)}}, []row{
			{"CPU per request, body of 200 KB, 1 message", cpuEach, fine, ratio, 1.6, 1.45, false},
		}},
		{"many", underLoad{bare, gate, job{Kind: saturate, Connections: 8, Body: largeBody(400)}}, []row{
			{"CPU per request, body of 200 KB, 400 messages", cpuEach, fine, ratio, 1.6, 1.45, false},
		}},
		{"wallet", underLoad{walletEach, oneWallet, job{Kind: saturate, Connections: 64, Body: smallBody(false)}}, []row{
			{"Requests per CPU-second, 64 keys on one wallet, beside 64 with a wallet each", perCPUSecond, perSecond, ratio, 0.97, 1.00, true},
		}},
		{"console", underLoad{respond, console, job{Kind: saturate, Connections: 64}}, []row{
			{"CPU per console read with a session, beside Caddy's respond", cpuEach, fine, ratio, 5, 4, false},
		}},
		{"pages", browsing{few: entries / 1000, many: entries / 10}, []row{
			{"Slowest page of the console, of a user with " + few + " calls, " + humanize.Comma(entries/100) + " tasks and " + humanize.Comma(entries/1000) + " orders", medianLatency, milliseconds, byItself, ms(50), ms(20), false},
			{"Heaviest page of the console with its assets, compressed", pageWeight, kibibytes, byItself, 60 << 10, 40 << 10, false},
		}},
		{"logins", loggingIn{Few: 4, Many: 64}, []row{
			{"Growth of memory by log-ins, 64 at once", memoryGrown, mebibytes, byItself, 4 * 19 << 20, 4 * 19 << 20, false},
		}},
		{"people", underLoad{withSessions(entries / 100), withSessions(entries), job{Kind: saturate, Connections: 64}}, []row{
			{"Start to first answer, " + humanize.Comma(entries/sessionsEach) + " users with " + many + " sessions", untilAnswer, seconds, byItself, ms(2000), ms(1000), false},
			{"CPU per console read there, beside a hundredth of them", cpuEach, fine, ratio, 1.10, 1.00, false},
		}},
		{"purchases", besideCommits{rolePurchases, 64, 10_000}, []row{
			{"Purchases of a plan, 64 at once, beside commits of one small record", eachSecond, perSecond, ratio, 0.10, 0.25, true},
		}},
		{"submissions", besideCommits{roleTasks, 64, 10_000}, []row{
			{"Submissions of a task, 64 at once, beside commits of one small record", eachSecond, perSecond, ratio, 0.10, 0.25, true},
			{label: "CPU of these, each", figure: cpuEach, unit: fine, compare: ratio},
			{label: "Latency p99 of these, beside one commit alone", figure: tailLatency, unit: microseconds, compare: ratio},
		}},
		{"status", underLoad{respondTask, finished, job{Kind: saturate, Connections: 64}}, []row{
			{"CPU per query of a finished task, beside Caddy's respond", cpuEach, fine, ratio, 1.30, 1.15, false},
		}},
		{"prompt", prompting{Tasks: 32}, []row{
			{"Time from a backend's completion to success, beside the longest poll interval", took, milliseconds, added, ms(50), ms(25), false},
			{"Of this, since the backend has reported it", successDelay, milliseconds, byItself, ms(50), ms(25), false},
		}},
		{"backlog", resting{few: entries / 1000, many: entries / 10}, []row{
			{"Memory with " + few + " unfinished tasks, 8 of them at a backend", memory, mebibytes, byItself, 300 << 20, 150 << 20, false},
			{"Share of a core there, at rest", share, percent, byItself, 0.05, 0.02, false},
			{"Start to first answer there", untilAnswer, seconds, byItself, ms(3000), ms(1000), false},
		}},
		{"verify", verifying{few: entries / 10, many: entries}, []row{
			{"Verify of " + many + " entries, beside " + few, took, seconds, byItself, ms(30_000), ms(10_000), false},
			{"Growth of memory meanwhile, without pages of mapped files", memoryOwn, mebibytes, added, 64 << 20, 16 << 20, false},
			{label: "Growth of these pages meanwhile", figure: memoryMapped, unit: mebibytes, compare: added},
		}},
	}
}

// withoutMoney returns the measure with calls that have no price. It is not ok
// if the measure is not about calls.
func (m measure) withoutMoney() (_ measure, ok bool) {
	u, ok := m.trial.(underLoad)
	if !ok || u.gateway.name != gate.name {
		return m, false
	}
	u.gateway = free
	m.trial = u
	return m, true
}

// names returns the names that -only accepts.
func names() (all []string) {
	for _, m := range measures(ledgerEntries, lastingLoad) {
		all = append(all, m.name)
	}
	return all
}

func ms(n float64) float64 { return n * float64(time.Millisecond) }
