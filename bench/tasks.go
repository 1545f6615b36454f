package main

import (
	"context"

	"github.com/caddy-modelgate/modelgate/backends"
	"github.com/caddy-modelgate/modelgate/internal/catalog"
	"github.com/caddy-modelgate/modelgate/internal/ledger"
	"github.com/caddy-modelgate/modelgate/internal/task"
	"github.com/caddy-modelgate/modelgate/money"
)

// submitTasks alternates commits and submissions. Commits by many goroutines
// give the throughput, commits by one goroutine the latency. The backend
// accepts each job at once and finishes none.
func (o besideOrder) submitTasks(ctx context.Context, b *testStore) (p pair, err error) {
	if err := b.credit(ctx, "wallets", o.Users, o.Users, 10_000*money.Unit); err != nil {
		return p, err
	}
	engine := task.Open(b.store, b.ledger, task.Options{Logger: discardLogger()})
	defer engine.Close(ctx)
	if err := engine.Serve(task.Config{Unfinished: unbounded, Backends: []task.Backend{{Name: serviceName, Backend: acceptingBackend{}}}}); err != nil {
		return p, err
	}
	submit := func(n int64) error {
		_, _, err := engine.Submit(ctx, submission(userName(int(n)%o.Users)))
		return err
	}
	commits := &workers{concurrency: o.Concurrency, do: func(n int64) error { return b.commit(ctx, n) }}
	single := &workers{concurrency: 1, do: func(n int64) error { return b.commit(ctx, -n) }, timed: true}
	submissions := &workers{concurrency: o.Concurrency, do: submit, timed: true, users: o.Users}
	if err := alternate(o.Turns, o.Profile, commits, single, submissions); err != nil {
		return p, err
	}
	p = pair{commits.sample, submissions.sample}
	p[0].P50, p[0].P99 = percentiles(single.took)
	p[1].P50, p[1].P99 = percentiles(submissions.took)
	return p, nil
}

// unbounded is the number of unfinished tasks that an API key may have here.
const unbounded = 1 << 30

// taskPrice is held for each task.
const taskPrice = money.Unit / 10

// submission returns a video request of a user, with the usual fields.
func submission(user string) task.Submission {
	return task.Submission{
		Payer: ledger.Payer{User: user}, Key: "key_" + user, Backend: serviceName,
		Quote: catalog.Quote{
			Hold: taskPrice, Rule: "0.10 a generation", Kind: catalog.Video, Request: taskPrice,
			Asked: catalog.Work{Count: 1, Duration: 8 * catalog.Second},
		},
		Job: backends.Job{
			Kind: backends.Video, Model: videoModel, Prompt: videoPrompt,
			Output: backends.Output{Duration: 8, Resolution: "720P", AspectRatio: "16:9"},
		},
	}
}

// acceptingBackend is a backend that accepts each job at once and never
// finishes one.
type acceptingBackend struct{}

func (acceptingBackend) Submit(_ context.Context, job backends.Job) (backends.Ref, error) {
	return backends.Ref{ID: "job-" + job.Token}, nil
}

func (acceptingBackend) Poll(context.Context, backends.Ref) (backends.Status, error) {
	return backends.Status{State: backends.Running, Progress: 50}, nil
}
