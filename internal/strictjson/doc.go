// Package strictjson reads JSON that other people wrote, in the one meaning
// every reader of it must share: what is checked here is what is priced,
// stored and sent on.
//
// It has two halves. [Table.Scan] and [Table.ScanNotes] serve model calls: one pass over a body
// that is passed on byte for byte, which checks the grammar, finds the few
// members the gateway acts on, and leaves all others unread. [Decode] serves
// the small bodies that end here, those of the console, of platform tasks and
// of the admin endpoint: every member of them is known, and typed.
//
// Both take the JSON of docs/reference/http.md#json: RFC 8259, valid UTF-8, no
// byte order mark, one object and nothing but white space around it, at most
// [MaxDepth] brackets deep, integers written as integers. Both refuse in the
// same words, a [fault.Fault] that names the path of the parameter at fault:
//
//	INVALID_JSON       the grammar is broken, with the offset of the byte
//	MISSING_PARAMETER  a required member is absent or null
//	INVALID_PARAMETER  a member has a wrong type, is out of range, is given
//	                   twice or, where names are closed, is not known
package strictjson
