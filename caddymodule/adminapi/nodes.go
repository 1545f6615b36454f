package adminapi

// Node describes a gateway of a shared store to operators.
type Node struct {
	Epoch   int64  `json:"epoch"` // its number; a gateway that joins anew gets another one
	Name    string `json:"name"`
	State   string `json:"state"` // live or ended
	Self    bool   `json:"self,omitempty"`
	Leads   bool   `json:"leads,omitempty"` // does the work that one gateway does for all
	Version string `json:"version"`
	Config  string `json:"config"`          // a hash of the options
	Behind  int64  `json:"behind"`          // changes that it has not read yet
	Since   int64  `json:"since"`           // Unix seconds
	Last    int64  `json:"last_beat"`       // Unix seconds
	Ended   int64  `json:"ended,omitempty"` // Unix seconds
}

// The states of a node.
const (
	NodeLive  = "live"
	NodeEnded = "ended"
)

// nodesOf returns the gateways of the store, those that ended within an hour included. A store
// that is not shared has none.
func nodesOf(c *call) ([]Node, error) {
	known, told, err := c.Store.Nodes(c.ctx())
	nodes, oldest := make([]Node, 0, len(known)), true
	for _, n := range known {
		node := Node{
			Epoch: n.Epoch, Name: n.Name, State: NodeLive, Self: n.Epoch == c.Store.Epoch(), Version: n.Version, Config: n.Config,
			Behind: max(0, told-n.Seen), Since: n.Since, Last: n.Last, Ended: n.Ended,
		}
		if n.Ended != 0 {
			node.State, node.Behind = NodeEnded, 0
		} else {
			node.Leads, oldest = oldest, false
		}
		nodes = append(nodes, node)
	}
	return nodes, err
}

func listNodes(c *call) (any, error) { return listed(nodesOf(c)) }
