package usage

import (
	"bytes"
	"hash/maphash"
	"slices"
)

// items are the content blocks of a message, or the elements of the output of a response
// (POST /v1/responses). It keeps only the uses of tools that the backend runs.
type items struct {
	item          // the element that is being read
	response bool // the answer is a response
	ended    uses // in blocks that ended, or in events that end elements
	listed   uses // in the last list of elements
}

// uses has the uses of tools in some items.
type uses struct {
	tools      []ToolUse // at most maxTools
	containers []uint64  // hashes of the ids of containers that have counted; at most maxContainers
}

// maxContainers is the maximum number of containers that are stored for one answer. In further
// containers, each use counts.
const maxContainers = 64

// containerSeed is the seed of the hashes of containers.
var containerSeed = maphash.MakeSeed()

// item is one element.
type item struct {
	tool      Name   // the tool of the backend that ran; empty: none
	other     bool   // the tool did something other than a search, such as opening a page
	local     bool   // the caller ran it
	container uint64 // hash of the id of the container in which it ran; zero: not reported
}

// isResponse reports whether the answer is a response.
func (r *report) isResponse() bool { return r.items != nil && r.items.response }

// itemsOf returns the items of the answer. It never returns nil.
func (r *report) itemsOf() *items {
	if r.items == nil {
		r.items = new(items)
	}
	return r.items
}

// open begins a list of items. If element is set, it begins an item of the current list. A new list
// replaces the previous one.
func (i *items) open(element bool) {
	i.item, i.response = item{}, true
	if !element {
		i.listed = uses{}
	}
}

// count adds the item to u if the backend ran a tool. A tool that the caller ran in a local environment does
// not count. A web_search counts only if it was a search, because the vendor bills no other actions, but
// reports each of them as an item. A container counts once, whatever runs in it, because the vendor bills its
// session.
func (i *items) count(u *uses) {
	counts := i.tool.n > 0 && !i.local && (!i.other || string(i.tool.bytes()) != "web_search")
	if counts && i.container != 0 {
		counts = !slices.Contains(u.containers, i.container)
		if counts && len(u.containers) < maxContainers {
			u.containers = append(u.containers, i.container)
		}
	}
	if counts {
		u.add(i.tool.bytes())
	}
	i.item = item{}
}

// add counts one use of a tool.
func (u *uses) add(tool []byte) {
	if use := useOf(&u.tools, tool, true); use != nil {
		use.Uses++
	}
}

// callSuffix is the suffix of the types of items that are uses of a tool.
const callSuffix = "_call"

// begin sets the type of the item. unseen is set if the item may have a cost that its text does not
// show. This is the case for all types except messages and calls of the caller's functions.
func (i *item) begin(kind []byte) (unseen bool) {
	switch string(kind) {
	case "message", "function_call", "custom_tool_call":
		return false
	case "computer_call", "local_shell_call", "apply_patch_call", "tool_search_call": // the caller runs them
		return true
	}
	if name, ok := bytes.CutSuffix(kind, []byte(callSuffix)); ok {
		i.tool.set(name)
	}
	return true
}
