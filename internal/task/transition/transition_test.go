package transition

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/task/record"
)

var allTransitions = []*Row{
	Submit, Send, SetAside, Requeue, Defer, PutBack, Accept,
	MarkUnknown, Search, Reject, RollBack, Claim, Postpone, Release,
	Poll, Free, Wake, Retry, Copy, Renew, Succeed, Fail, Expire,
	Withdraw, Cancel, Abandon, Lose, Watch, Delete, Forget,
}

// at returns a task at each stage.
func at() map[stage]*record.Record {
	later := time.Now().Add(time.Hour).UnixMilli()
	records := map[stage]*record.Record{absent: nil}
	for stage, r := range map[stage]record.Record{
		isWaiting: {State: record.Queued, Delivery: record.None}, isSending: {State: record.Queued, Delivery: record.Sending},
		isUnknown: {State: record.Queued, Delivery: record.Unknown}, isAccepted: {State: record.Queued, Delivery: record.Accepted},
		isRunning: {State: record.InProgress, Delivery: record.Accepted}, isSuccess: {State: record.Success, Delivery: record.Accepted}, isFailed: {State: record.Failed},
	} {
		r.ID, r.User, r.Key, r.Fence, r.Owner, r.Attempt, r.Deadline, r.Lease = record.NewID(), "user_ann", "key_ann1", 3, "engine", 3, later, later
		records[stage] = &r
	}
	return records
}

// refuses reports whether a transition is refused. It has no transaction, so a write would panic.
func refuses(t *testing.T, tr *Row, c Change) bool {
	t.Helper()
	defer func() {
		if p := recover(); p != nil {
			t.Errorf("%s from stage %d is not refused: %v", tr.Name, stageOf(c.Before), p)
		}
	}()
	w := Writer{Engine: "engine", Clock: time.Now}
	done, err := w.Apply(t.Context(), nil, tr, &c)
	return !done && err == nil && c.After == c.Before
}

func TestATransitionIsRefusedFromOtherStagesAndActors(t *testing.T) {
	t.Parallel()
	for _, tr := range allTransitions {
		for stage, r := range at() {
			known := r
			if r == nil {
				known = &record.Record{ID: record.NewID()}
			}
			if tr.from&stage == 0 && !refuses(t, tr, Change{Known: known, Before: r, Owner: record.Anyone}) {
				t.Errorf("%s is allowed from stage %d", tr.Name, stage)
			}
			if tr.from&stage == 0 || r == nil {
				continue
			}
			stale := *r
			stale.Fence, stale.Attempt = 2, 2
			for who, c := range map[string]Change{
				theClaimant.actor: {Known: &stale}, theSweeper.actor: {Known: &stale}, theDelivery.actor: {Known: &stale},
				theDriver.actor:   {Known: r}, // the task is being processed
				anotherNode.actor: {Known: r, Ended: "another engine"},
				theOwner.actor:    {Known: r, Owner: record.OfUser("user_bob")}, anOperator.actor: {Known: r, Owner: record.OfUser("user_ann")},
			} {
				if c.Before = r; tr.by.actor == who && !refuses(t, tr, c) {
					t.Errorf("%s from stage %d is allowed to others than %s", tr.Name, stage, who)
				}
			}
		}
	}
}

func TestTransitionsEndATaskOnceWithItsMoney(t *testing.T) {
	t.Parallel()
	has := func(tr *Row, effect func(*Change) error) bool {
		return slices.ContainsFunc(tr.also, func(one func(*Change) error) bool {
			return reflect.ValueOf(one).Pointer() == reflect.ValueOf(effect).Pointer()
		})
	}
	for _, tr := range allTransitions {
		to := tr.to
		if to == 0 {
			to = tr.from
		}
		begins, ends := tr.from == absent, tr.from&isUnfinished != 0 && tr.to != 0 && tr.to&isUnfinished == 0
		for what, wrong := range map[string]bool{
			"it has no name or cause":                    tr.Name == "" || tr.by.actor == "",
			"it begins or ends a task only sometimes":    tr.from&absent != 0 && tr.from != absent || ends && to&isUnfinished != 0,
			"a finished task becomes unfinished":         tr.from&isOver != 0 && tr.from != anyStage && to&isUnfinished != 0,
			"a task at the backend returns to the queue": tr.from&atBackend != 0 && tr.to&(isWaiting|isSubmitted) != 0,
			"a running task becomes queued":              tr.from == isRunning && to&isAccepted != 0,
			"the effect hold is wrong":                   has(tr, hold) != begins,
			"the effect capture is wrong":                has(tr, capture) != (ends && to == isSuccess),
			"the effect void is wrong":                   has(tr, void) != (ends && to != isSuccess),
			"the effect announce is wrong":               has(tr, announce) != (ends && to != absent),
			"the effect dropBody is wrong":               has(tr, dropBody) != ends,
			"MovesMoney is wrong":                        tr.MovesMoney() != ends,
		} {
			if wrong {
				t.Errorf("%s: %s", tr.Name, what)
			}
		}
	}
}

// TestEveryTransitionIsTested checks that allTransitions has all rows of the table, and that one
// place of internal/task writes the records of tasks.
func TestEveryTransitionIsTested(t *testing.T) {
	t.Parallel()
	files := token.NewFileSet()
	rows, writes := 0, 0
	err := filepath.WalkDir("..", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(files, path, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CompositeLit:
				if of, is := n.Type.(*ast.Ident); is && of.Name == "Row" {
					rows++
				}
			case *ast.SelectorExpr:
				name, _ := n.X.(*ast.Ident)
				if on, is := n.X.(*ast.SelectorExpr); is {
					name = on.Sel
				}
				if name != nil && name.Name == "Tasks" && slices.Contains([]string{"Put", "Change", "Delete"}, n.Sel.Name) {
					writes++
				}
			}
			return true
		})
		return nil
	})
	if err != nil || rows != len(allTransitions) || writes != 1 {
		t.Errorf("the table has %d rows, %d are tested; %d places write tasks; %v", rows, len(allTransitions), writes, err)
	}
}
