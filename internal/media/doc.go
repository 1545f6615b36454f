// Package media keeps copies of the results of generation tasks, because the
// links of a service may expire within an hour, and serves them for seven days.
// An [Archive] owns the files and their records; a [Place] stores the bytes, in
// a directory ([Dir]) or in a bucket ([S3]).
//
// A file has a name of 128 random bits, which is its only secret. The name is
// stored before the first byte is requested, so that a copy which an error or
// the end of the process interrupts continues under the same name. The bytes go
// to a draft, which the place turns into the file in one durable step; only
// then does the record say that the file is kept. So a power failure cannot
// take a file that was reported as kept.
//
// If the service can serve the rest of the same content (RFC 9110, section
// 13.1.5), a draft is continued, otherwise it is begun again. The record says
// how much of it is durable.
//
// Seven days after it was kept, a file is refused as gone, and [Archive.Sweep]
// removes it. The record stays as long as the task, so that an old link can say
// what has happened. Abandoned drafts are removed within hours. A file without
// a record, such as one from before the store was restored from a backup, is
// removed only when it is older than any file is kept.
package media
