package storage

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"
)

// The feed of a shared store has the topics of all nodes, in the order of commits. A topic names what
// a transaction has changed, and is written in that transaction. See [Follower].

var feedHeadKey = Key("feed", "head")

func feedKey(position int64) []byte { return Key("feed", "at", position) }

// feedKept is how long topics are kept in the feed. A node that has not read them by then has ended.
const feedKept = time.Hour

// Tell writes a topic into the feed of a shared store, in the transaction t. With another store it
// does nothing.
func (s *Store) Tell(t Txn, topic string) error {
	if !s.shared {
		return nil
	}
	head, err := getNumber(t, feedHeadKey)
	if err != nil {
		return err
	}
	return errors.Join(
		t.Set(feedHeadKey, Key(head+1), time.Time{}),
		t.Set(feedKey(head+1), []byte(topic), s.Now().Add(feedKept)))
}

// maxTopics is how many topics of the feed are read at once.
const maxTopics = 1000

// readFeed returns the topics after a position and the position of the last one. It returns
// ErrFenced if rows are missing, because they are too old or the store has lost its history: the
// node must load everything anew.
func readFeed(r Reader, position int64) (topics []string, last int64, err error) {
	head, err := getNumber(r, feedHeadKey)
	if err != nil {
		return nil, position, err
	}
	last = position
	_, hi := Below("feed", "at")
	var damaged error
	err = r.Scan(feedKey(position+1), hi, func(key, val []byte) bool {
		var at int64
		if at, damaged = decodeNumber(key[len(key)-8:]); damaged != nil || at != last+1 {
			return false
		}
		topics, last = append(topics, string(val)), at
		return len(topics) < maxTopics
	})
	if err = errors.Join(err, damaged); err == nil && last != head && len(topics) < maxTopics {
		err = fmt.Errorf("%w: the feed has no rows from %d to %d", ErrFenced, last+1, head)
	}
	return topics, last, err
}

// seenPause is the time between two reads of WaitUntilSeen.
const seenPause = 50 * time.Millisecond

// WaitUntilSeen waits until every node that lives has read all topics that were committed before, so
// that a revocation is in force everywhere. A node that cannot read them admits no calls, and the
// others end it. If the store is not shared, WaitUntilSeen returns at once.
func (s *Store) WaitUntilSeen(ctx context.Context) error {
	if s.member.Load() == nil {
		return nil
	}
	head := int64(-1)
	for {
		behind := false
		err := s.View(ctx, func(r Reader) error {
			if head < 0 {
				var err error
				if head, err = getNumber(r, feedHeadKey); err != nil {
					return err
				}
			}
			nodes, err := readNodes(r)
			for _, n := range nodes {
				behind = behind || n.Ended == 0 && n.Seen < head
			}
			return err
		})
		if err != nil || !behind {
			return err
		}
		timer := time.NewTimer(seenPause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		}
	}
}

// decodeNumber decodes a number that Key has encoded.
func decodeNumber(val []byte) (int64, error) {
	if len(val) != 8 {
		return 0, fmt.Errorf("a number has %d bytes: %w", len(val), ErrUnreadable)
	}
	return int64(binary.BigEndian.Uint64(val)), nil //nolint:gosec // two's complement, as Key writes it
}
