// Package media keeps copies of what generation tasks have made, since the links
// of a service may end within the hour, and gives them out for seven days.
//
// # A file
//
// A file has a name of 128 random bits, which is its only secret. The name is
// drawn once for each result of a task and is in the store before the first byte
// is asked for, so that a copy which was broken off, by an error or by the end of
// the process, is made under the same name. The bytes go to a draft, which a
// [Place] makes the file in one durable step; only then does the record say that
// it is kept. So nothing is told as kept that a power cut could take.
//
// A draft is gone on with where the service can serve the rest of what it served
// before (RFC 9110, section 13.1.5), else it is begun anew. How much of it is
// durable stands in the record.
//
// # Its end
//
// Seven days after it was kept a file is refused as gone, and [Archive.Sweep]
// removes it. The record stays as long as tasks do, so that an old link says
// what has happened. Drafts that nobody goes on with are removed within hours.
// A file that no record knows, as a store has that was restored from a backup, is
// left alone until it is older than any file is kept: then it is nobody's.
package media
