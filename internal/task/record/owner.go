package record

// Owner says whose tasks are asked for. The zero value has none.
type Owner struct{ key, user string }

// The owners. OfKey is for callers, OfUser for the console, Anyone for
// operators.
var Anyone = Owner{"*", "*"}

// OfKey owns the tasks that an API key has submitted.
func OfKey(id string) Owner { return Owner{key: id} }

// OfUser owns the tasks of all keys of a user.
func OfUser(id string) Owner { return Owner{user: id} }

// Owns reports whether a task of this key and user is the owner's.
func (o Owner) Owns(key, user string) bool {
	return o == Anyone || o.key != "" && o.key == key || o.user != "" && o.user == user
}
