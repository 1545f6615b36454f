package ledger

import (
	"fmt"
	"testing"
	"testing/synctest"

	"pgregory.net/rapid"

	"github.com/caddy-modelgate/modelgate/storage"
	"github.com/caddy-modelgate/modelgate/storage/storagetest"
)

// clusterSteps are the steps of a cluster by name.
var clusterSteps = map[string]stepKind[*clusterModel]{
	"credit":   {1, (*clusterModel).credit},
	"purchase": {4, (*clusterModel).purchase},
	"refund":   {1, (*clusterModel).refund},
	"reserve":  {12, (*clusterModel).reserve},
	"grow":     {2, (*clusterModel).grow},
	"interim":  {4, (*clusterModel).interim},
	"final":    {3, (*clusterModel).final},
	"release":  {2, (*clusterModel).release},
	"stop":     {2, (*clusterModel).halt},
	"resume":   {4, (*clusterModel).resume},
	"cut":      {1, (*clusterModel).cut},
	"fault":    {3, (*clusterModel).fault},
	"kill":     {1, (*clusterModel).kill},
	"leave":    {1, (*clusterModel).leave},
	"join":     {2, (*clusterModel).join},
	"pass":     {5, (*clusterModel).pass},
}

// clusterFaults are the faults of commits of a node. Most are lost answers.
var clusterFaults = []storagetest.Fault{
	storagetest.None, storagetest.UnknownCommitted, storagetest.UnknownCommitted, storagetest.UnknownCommitted, storagetest.UnknownLost, storagetest.UnknownLost,
	storagetest.Conflict, storagetest.LowSpace, storagetest.SyncFailed,
}

// TestRandomStepsOfThreeNodes runs random steps at three nodes whose commits lose their answers, and which
// stop between any two steps, end and join anew.
func TestRandomStepsOfThreeNodes(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		drawn := steps(clusterSteps, clusterFaults, 3).Draw(rt, "steps")
		if err := runClusterSteps(t, nil, drawn); err != nil {
			rt.Fatalf("%v\n%s", err, script(drawn))
		}
	})
}

// runClusterSteps runs steps on a new cluster and returns what was wrong.
func runClusterSteps(t *testing.T, broken func(storage.Engine) storage.Engine, steps []step) (err error) {
	synctest.Test(t, func(t *testing.T) {
		m := newClusterModel(t, broken)
		defer m.stop()
		for i, s := range steps {
			clusterSteps[s.do].do(m, s)
			synctest.Wait()
			m.check()
			if err = m.err(); err != nil {
				err = fmt.Errorf("step %d, %v\n%w", i, s, err)
				return
			}
		}
		m.finish()
		err = m.err()
	})
	return err
}
