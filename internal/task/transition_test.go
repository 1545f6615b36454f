package task

import (
	"go/ast"
	"go/parser"
	"go/token"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

var allTransitions = []*transition{
	transitionSubmit, transitionSend, transitionPutAside, transitionRequeue, transitionDefer, transitionPutBack, transitionAccept,
	transitionMarkUnknown, transitionSearch, transitionReject, transitionTakeBack, transitionClaim, transitionPostpone, transitionRelease,
	transitionPoll, transitionWake, transitionRetry, transitionCopy, transitionRenew, transitionSucceed, transitionFail, transitionExpire,
	transitionWithdraw, transitionCancel, transitionAbandon, transitionLose, transitionWatch, transitionForget,
}

// at returns a task at each stage.
func at() map[stage]*record {
	later := time.Now().Add(time.Hour).UnixMilli()
	records := map[stage]*record{absent: nil}
	for stage, r := range map[stage]record{
		isWaiting: {State: Queued, Delivery: None}, isSending: {State: Queued, Delivery: Sending},
		isUnknown: {State: Queued, Delivery: Unknown}, isAccepted: {State: Queued, Delivery: Accepted},
		isRunning: {State: InProgress, Delivery: Accepted}, isSuccess: {State: Success, Delivery: Accepted}, isFailed: {State: Failed},
	} {
		r.ID, r.User, r.Key, r.Fence, r.Owner, r.Attempt, r.Deadline, r.Lease = newID(), ann, annKey, 3, "engine", 3, later, later
		records[stage] = &r
	}
	return records
}

// refuses reports whether a transition writes nothing: there is no transaction to write with.
func refuses(t *testing.T, tr *transition, c change) bool {
	t.Helper()
	defer func() {
		if p := recover(); p != nil {
			t.Errorf("%s from %d is begun: %v", tr.name, c.before.stage(), p)
		}
	}()
	m := transitions{"engine", time.Now, func() CallbackAddresses { return nil }}
	done, err := m.apply(t.Context(), nil, tr, &c)
	return !done && err == nil && c.after == c.before
}

func TestATransitionIsMadeOnlyFromItsStagesAndByItsCause(t *testing.T) {
	t.Parallel()
	for _, tr := range allTransitions {
		for stage, r := range at() {
			known := r
			if r == nil {
				known = &record{ID: newID()}
			}
			if tr.from&stage == 0 && !refuses(t, tr, change{known: known, before: r, owner: Anyone}) {
				t.Errorf("%s is made from %d", tr.name, stage)
			}
			if tr.from&stage == 0 || r == nil {
				continue
			}
			stale := *r
			stale.Fence, stale.Attempt = 2, 2
			for who, c := range map[string]change{
				theClaimant.who: {known: &stale}, theSweeper.who: {known: &stale}, theDelivery.who: {known: &stale},
				theDriver.who: {known: r}, // a look is under way
				theOwner.who:  {known: r, owner: OfUser("user_bob")}, anOperator.who: {known: r, owner: OfUser(ann)},
			} {
				if c.before = r; tr.by.who == who && !refuses(t, tr, c) {
					t.Errorf("%s from %d is made by other than %s", tr.name, stage, who)
				}
			}
		}
	}
}

func TestTheTransitionsEndATaskOnceWithItsMoney(t *testing.T) {
	t.Parallel()
	has := func(tr *transition, effect func(*change) error) bool {
		return slices.ContainsFunc(tr.also, func(one func(*change) error) bool {
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
			"it has no name or cause":                tr.name == "" || tr.by.who == "",
			"it begins or ends a task sometimes":     tr.from&absent != 0 && tr.from != absent || ends && to&isUnfinished != 0,
			"it leads from the end to what is none":  tr.from&isOver != 0 && tr.from != anyStage && to&isUnfinished != 0,
			"it leads from the backend to the queue": tr.from&atBackend != 0 && tr.to&(isWaiting|isSubmitted) != 0,
			"a running task becomes queued":          tr.from == isRunning && to&isAccepted != 0,
			"it holds, or does not":                  has(tr, hold) != begins,
			"it charges, or does not":                has(tr, capture) != (ends && to == isSuccess),
			"it voids, or does not":                  has(tr, void) != (ends && to != isSuccess),
			"it announces, or does not":              has(tr, announce) != (ends && to != absent),
			"it drops the body, or does not":         has(tr, dropBody) != ends,
			"it is no transaction of the ledger":     tr.money() != ends,
		} {
			if wrong {
				t.Errorf("%s: %s", tr.name, what)
			}
		}
	}
}

// TestEveryTransitionIsTested: the tests above know all rows of the table, and records of tasks are
// written in one place.
func TestEveryTransitionIsTested(t *testing.T) {
	t.Parallel()
	files := token.NewFileSet()
	packages, err := parser.ParseDir(files, ".", nil, 0) //nolint:staticcheck // build tags do not matter here
	if err != nil {
		t.Fatal(err)
	}
	rows, writes := 0, 0
	for name, file := range packages["task"].Files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.ValueSpec:
				if strings.HasPrefix(n.Names[0].Name, "transition") {
					rows++
				}
			case *ast.SelectorExpr:
				if on, is := n.X.(*ast.Ident); is && on.Name == "tasks" && slices.Contains([]string{"Put", "Change", "Delete"}, n.Sel.Name) {
					writes++
				}
			}
			return true
		})
	}
	if rows != len(allTransitions) || writes != 1 {
		t.Errorf("the table has %d rows, %d are tested; tasks are written in %d places", rows, len(allTransitions), writes)
	}
}
