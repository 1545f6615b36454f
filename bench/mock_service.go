package main

import (
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"time"
)

// The generation service of this benchmark. The backend process serves it.
const (
	serviceName = "mock_service"
	serviceKey  = "sk-000000000000000000000000000000000000000000service"
	videoModel  = "video-bench-1"
	videoPrompt = "a cat that goes for a walk through a town in the rain, in the colours of an old film"
	videoURL    = "https://files.example.com/results/01XFDUDYJgAACzvnptvVoYEL.mp4"

	// endless is the prompt of a job that never finishes.
	endless = "an endless video"
)

// mockService serves the platform interface. A job completes at its first poll,
// which is the worst case: the gateway notices it only after a whole poll
// interval.
type mockService struct {
	mu   sync.Mutex
	jobs map[string]*work
}

// work is a job of the mock service. Its times are Unix nanoseconds; zero means
// not yet.
type work struct {
	Completed int64 `json:"completed"`
	Reported  int64 `json:"reported"` // time of the first poll that reported success

	endless bool
}

func newMockService() *mockService { return &mockService{jobs: make(map[string]*work)} }

// workPath is where the service reports the times of a job to the benchmark.
const workPath = "/mock_service/"

// routes adds the routes of the service. A job id is the token of its task.
func (s *mockService) routes(mux *http.ServeMux) {
	mux.HandleFunc("POST /v1/platform/video", s.take)
	mux.HandleFunc("GET /v1/platform/tasks/{id}", s.show)
	mux.HandleFunc("GET "+workPath+"{id}", func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		answerWith(w, s.jobs[r.PathValue("id")])
	})
}

func (s *mockService) take(w http.ResponseWriter, r *http.Request) {
	var job struct {
		Prompt    string `json:"prompt"`
		SessionID string `json:"session_id"`
	}
	if err := json.NewDecoder(r.Body).Decode(&job); err != nil || job.SessionID == "" {
		http.Error(w, "this is not a submission", http.StatusBadRequest)
		return
	}
	s.mu.Lock()
	if s.jobs[job.SessionID] == nil {
		s.jobs[job.SessionID] = &work{endless: job.Prompt == endless}
	}
	s.mu.Unlock()
	answerWith(w, map[string]any{"task_id": job.SessionID, "status": "queued"})
}

func (s *mockService) show(w http.ResponseWriter, r *http.Request) {
	now := time.Now().UnixNano()
	id := r.PathValue("id")
	s.mu.Lock()
	defer s.mu.Unlock()
	job := s.jobs[id]
	switch {
	case job == nil:
		http.Error(w, `{"code":"TASK_NOT_FOUND","message":"there is no such task"}`, http.StatusNotFound)
		return
	case job.Completed == 0:
		if !job.endless {
			job.Completed = now
		}
		answerWith(w, map[string]any{"task_id": id, "object": "video_task", "model": videoModel, "status": "in_progress", "progress": "50%", "created_at": now / 1e9})
		return
	case job.Reported == 0:
		job.Reported = now
	}
	answerWith(w, map[string]any{
		"task_id": id, "object": "video_task", "model": videoModel, "status": "success", "progress": "100%",
		"created_at": now / 1e9, "completed_at": now / 1e9,
		"result": map[string]any{"url": videoURL, "urls": []string{videoURL}, "type": "video"},
	})
}

func answerWith(w http.ResponseWriter, what any) {
	w.Header()["Content-Type"] = []string{"application/json"}
	_, _ = w.Write(marshal(what))
}

// isMockService reports whether a path belongs to the mock service.
func isMockService(path string) bool {
	return strings.HasPrefix(path, "/v1/platform/") || strings.HasPrefix(path, workPath)
}
