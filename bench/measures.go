package main

import "time"

// measure is a job that both sides are put to, and what is read from it. A new
// measure is a new row of the table below.
type measure struct {
	name string // for -only, and in file names of profiles
	job  job
	rows []row
}

// row is one line of the report.
type row struct {
	label     string
	figure    func(sample) float64
	unit      unit
	compare   comparison
	must, aim float64
	atLeast   bool // must and aim are the least, not the most
}

// comparison is how a figure of the gateway is judged.
type comparison uint8

const (
	ratio comparison = iota // as a multiple of bare's
	added                   // by what it is more than bare's
	byItself
)

// unit is how a figure is written: in so many of what it is measured in.
type unit struct {
	name   string
	scale  float64
	digits int
}

var (
	perSecond    = unit{"/s", 1, 0}
	microseconds = unit{"µs", 1e3, 0}
	milliseconds = unit{"ms", 1e6, 0}
	kibibytes    = unit{"KiB", 1 << 10, 0}
	mebibytes    = unit{"MiB", 1 << 20, 0}
	fine         = unit{"µs", 1e3, 1}
	times        = unit{"×", 1, 2}
)

// Figures of a sample.
var (
	perCPUSecond  = func(s sample) float64 { return float64(s.Units) / s.CPU.Seconds() }
	cpuEach       = func(s sample) float64 { return float64(s.CPU) / float64(s.Units) }
	medianLatency = func(s sample) float64 { return float64(s.P50) }
	tailLatency   = func(s sample) float64 { return float64(s.P99) }
	memory        = func(s sample) float64 { return float64(s.Resident) }
	memoryEach    = func(s sample) float64 { return float64(s.Grown) / float64(s.Units) }
	untilAnswer   = func(s sample) float64 { return float64(s.Start) }
)

// measures are all that is measured, in the order of the report.
var measures = []measure{
	{"json", job{Kind: saturate, Connections: 64, Body: smallBody(false)}, []row{
		{"Requests per CPU-second, 1 KB JSON, 64 connections", perCPUSecond, perSecond, ratio, 0.95, 1.03, true},
		{"Memory at saturation", memory, mebibytes, byItself, 200 << 20, 150 << 20, false},
		{"Start to first answer", untilAnswer, milliseconds, byItself, ms(500), ms(300), false},
	}},
	{"latency", job{Kind: paced, Connections: 64, Body: smallBody(false), Rate: 500}, []row{
		{"Latency p50 at 500 requests/s", medianLatency, microseconds, added, ms(0.150), ms(0.060), false},
		{"Latency p99 at 500 requests/s", tailLatency, microseconds, ratio, 1.5, 1.2, false},
	}},
	{"streams", job{Kind: streams, Connections: streamCount, Body: smallBody(true)}, []row{
		{"CPU per event, 20 streams, one event each 5 ms", cpuEach, fine, ratio, 1.10, 1.00, false},
	}},
	{"idle", job{Kind: idle, Connections: 1000, Body: smallBody(true)}, []row{
		{"Memory per idle stream, 1000 of them", memoryEach, kibibytes, byItself, 100 << 10, 85 << 10, false},
	}},
	{"large", job{Kind: saturate, Connections: 8, Body: largeBody(1)}, []row{
		{"CPU per request, body of 200 KB, 1 message", cpuEach, fine, ratio, 1.6, 1.45, false},
	}},
	{"many", job{Kind: saturate, Connections: 8, Body: largeBody(400)}, []row{
		{"CPU per request, body of 200 KB, 400 messages", cpuEach, fine, ratio, 1.6, 1.45, false},
	}},
}

func ms(n float64) float64 { return n * float64(time.Millisecond) }
