package storagetest

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/caddy-modelgate/modelgate/storage"
)

// step is one operation of a history: it reads key. If write is not nil and the
// value equals expect, it also writes key.
type step struct {
	key    string
	expect *string // nil: any
	write  *string // nil: only read
}

// outcome is the value that a step has read. After ErrUnknown there is none,
// and the step may have happened at any later time or never.
type outcome struct {
	read    string // "" when absent
	unknown bool
}

// register is the sequential specification of one key.
var register = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		byKey := map[string][]porcupine.Operation{}
		for _, op := range history {
			key := op.Input.(step).key
			byKey[key] = append(byKey[key], op)
		}
		var parts [][]porcupine.Operation
		for _, part := range byKey {
			parts = append(parts, part)
		}
		return parts
	},
	Init: func() any { return "" },
	Step: func(state, input, output any) (bool, any) {
		value, in, out := state.(string), input.(step), output.(outcome)
		if !out.unknown && out.read != value {
			return false, state
		}
		if in.write != nil && (in.expect == nil || *in.expect == value) {
			return true, *in.write
		}
		return true, state
	},
	DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v → %+v", input, output) },
}

// linearizable runs clients that concurrently read, write and compare-and-set a
// few keys. It searches for an order of the operations that explains all
// outcomes.
func linearizable(t *testing.T, e transactor) {
	const clients, rounds, keys = 6, 40, 3
	var (
		mu      sync.Mutex
		history []porcupine.Operation
		start   = time.Now()
	)
	concurrently(clients, func(client int) {
		random := rand.New(rand.NewPCG(2, uint64(client)))
		last := ""
		for round := range rounds {
			s := step{key: fmt.Sprintf("register/%d", random.IntN(keys))}
			value := fmt.Sprintf("%d.%d", client, round)
			switch random.IntN(4) {
			case 0, 1:
			case 2:
				s.write = &value
			case 3:
				expect := last
				s.expect, s.write = &expect, &value
			}
			op := porcupine.Operation{ClientId: client, Input: s, Call: int64(time.Since(start))}
			out, err := perform(t, e, s)
			op.Return, op.Output = int64(time.Since(start)), out
			switch {
			case errors.Is(err, storage.ErrUnknown):
				op.Return, op.Output = math.MaxInt64, outcome{unknown: true}
			case err != nil:
				t.Error(err)
				return
			default:
				last = out.read
			}
			mu.Lock()
			history = append(history, op)
			mu.Unlock()
		}
	})
	switch result := porcupine.CheckOperationsTimeout(register, history, 10*time.Second); result {
	case porcupine.Ok:
	default:
		t.Fatalf("the history of %d operations is not linearisable: %v", len(history), result)
	}
}

// perform runs one step.
func perform(t *testing.T, e transactor, s step) (outcome, error) {
	var out outcome
	read := func(r storage.Reader) error {
		val, err := r.Get([]byte(s.key))
		out = outcome{read: string(val)}
		return err
	}
	if s.write == nil {
		err := e.View(t.Context(), read)
		return out, err
	}
	err := retrying(t.Context(), e, func(txn storage.Txn) error {
		if err := read(txn); err != nil {
			return err
		}
		if s.expect != nil && *s.expect != out.read {
			return nil
		}
		pause()
		return txn.Set([]byte(s.key), []byte(*s.write), never)
	})
	return out, err
}
