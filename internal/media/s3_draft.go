package media

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"

	"github.com/minio/minio-go/v7"
)

// maxParts is the maximum number of parts of an upload.
const maxParts = 10_000

// objectDraft is a multipart upload. A file that fits into one part is uploaded
// as one object by Commit.
type objectDraft struct {
	ctx    context.Context // valid for the whole copy
	bucket *bucket
	object string
	upload string // upload id; empty: no upload has begun
	parts  []minio.CompletePart
	buffer []byte // bytes that are not uploaded yet, at most one part
}

func (b *bucket) Draft(ctx context.Context, name string, from int64) (Draft, error) {
	d := &objectDraft{ctx: ctx, bucket: b, object: b.object(name)}
	if from == 0 {
		return d, nil
	}
	if from%partSize != 0 {
		return nil, errNoDraft
	}
	uploads, err := b.uploads(ctx, name)
	if err != nil {
		return nil, err
	}
	for _, upload := range uploads {
		parts, err := b.parts(ctx, d.object, upload, int(from/partSize))
		if err != nil {
			return nil, err
		}
		if parts != nil {
			d.upload, d.parts = upload, parts
			return d, nil
		}
	}
	return nil, errNoDraft
}

// parts returns the first n parts of an upload, or nil if some are missing.
func (b *bucket) parts(ctx context.Context, object, upload string, n int) (parts []minio.CompletePart, err error) {
	for len(parts) < n {
		page, err := b.core.ListObjectParts(ctx, b.name, object, upload, len(parts), 1000)
		if err != nil {
			return nil, b.failure(err)
		}
		before := len(parts)
		for _, part := range page.ObjectParts {
			if len(parts) == n || part.PartNumber != len(parts)+1 || part.Size != partSize {
				break
			}
			parts = append(parts, minio.CompletePart{PartNumber: part.PartNumber, ETag: part.ETag})
		}
		if len(parts) == before {
			return nil, nil
		}
	}
	return parts, nil
}

// Write uploads a part when it is full and more bytes follow.
func (d *objectDraft) Write(p []byte) (written int, err error) {
	for len(p) > 0 {
		if len(d.buffer) == partSize {
			if err := d.flush(); err != nil {
				return written, err
			}
		}
		n := min(len(p), partSize-len(d.buffer))
		d.buffer = append(d.buffer, p[:n]...)
		p = p[n:]
		written += n
	}
	return written, nil
}

// flush uploads the buffer as a part.
func (d *objectDraft) flush() error {
	b := d.bucket
	if len(d.parts) == maxParts {
		return fmt.Errorf("more than %d bytes in one object", int64(maxParts)*partSize)
	}
	if d.upload == "" {
		upload, err := b.core.NewMultipartUpload(d.ctx, b.name, d.object, minio.PutObjectOptions{})
		if err != nil {
			return b.failure(err)
		}
		d.upload = upload
	}
	number := len(d.parts) + 1
	part, err := b.core.PutObjectPart(d.ctx, b.name, d.object, d.upload, number, bytes.NewReader(d.buffer), int64(len(d.buffer)),
		minio.PutObjectPartOptions{Sha256Hex: sum(d.buffer), DisableContentSha256: true})
	if err != nil {
		return b.failure(err)
	}
	d.parts = append(d.parts, minio.CompletePart{PartNumber: number, ETag: part.ETag})
	d.buffer = d.buffer[:0]
	return nil
}

// sum returns the checksum for the signature of a request. It signs the body as a
// whole, because some services cannot read signed chunks.
func sum(body []byte) string {
	sum := sha256.Sum256(body)
	return hex.EncodeToString(sum[:])
}

// Sync does nothing: every part is durable, and the buffer is requested again
// after a crash.
func (d *objectDraft) Sync() (int64, error) { return int64(len(d.parts)) * partSize, nil }

func (d *objectDraft) Commit() error {
	b := d.bucket
	if d.upload == "" {
		_, err := b.core.PutObject(d.ctx, b.name, d.object, bytes.NewReader(d.buffer), int64(len(d.buffer)), "", sum(d.buffer),
			minio.PutObjectOptions{DisableContentSha256: true})
		return b.failure(err)
	}
	if len(d.buffer) > 0 {
		if err := d.flush(); err != nil {
			return err
		}
	}
	_, err := b.core.CompleteMultipartUpload(d.ctx, b.name, d.object, d.upload, slices.Clone(d.parts), minio.PutObjectOptions{})
	return b.failure(err)
}

func (*objectDraft) Close() error { return nil }
