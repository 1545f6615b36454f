package record

// Owner identifies the owner of tasks. The zero value owns none.
type Owner struct{ key, user string }

// Anyone owns all tasks. It is for operators.
var Anyone = Owner{"*", "*"}

// OfKey owns the tasks of an API key. It is for callers.
func OfKey(id string) Owner { return Owner{key: id} }

// OfUser owns the tasks of all keys of a user. It is for the console.
func OfUser(id string) Owner { return Owner{user: id} }

// Sees reports whether a task belongs to the owner and is not hidden. A task that its caller has
// deleted is hidden from its API key, but not from its user and from operators: it has a charge.
func (o Owner) Sees(r *Record) bool {
	return o.Owns(r.Key, r.User) && (r.Deleted == 0 || o == Anyone || o.key == "")
}

// Owns reports whether a task of this key and user belongs to the owner.
func (o Owner) Owns(key, user string) bool {
	return o == Anyone || o.key != "" && o.key == key || o.user != "" && o.user == user
}
