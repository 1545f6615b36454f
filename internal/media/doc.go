// Package media keeps copies of the results of generation tasks for seven days, and serves
// them. The links of a service may expire within an hour. An [Archive] owns the files and
// their records; a [Place] stores the bytes, in a directory ([Dir]) or in a bucket ([S3]).
//
// A file has a name of 128 random bits, which is its only secret. The name is
// stored before the first byte is requested. So a copy that was interrupted, also
// by the end of the process, continues under the same name. The bytes go to a
// draft, which the place turns into the file in one durable step. After
// that the record says that the file is kept. So a power failure cannot lose a
// file that was reported as kept.
//
// If the service can serve the rest of the same content (RFC 9110, section
// 13.1.5), the copy continues the draft. Otherwise it starts again. The record
// has the durable length of the draft.
//
// Seven days after it was kept, a file is refused as gone, and [Archive.Sweep]
// removes it. The record stays as long as the task, so that an old link is
// answered as gone and not as unknown. Abandoned drafts are removed within
// hours. A file can be without a record if the store was restored from a backup.
// It is removed when it is older than the retention of files.
package media
