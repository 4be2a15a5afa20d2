package main

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"

	"github.com/idemstore/idemstore/client"
)

// csvRead reads, which has no effect.
func csvRead(_ context.Context, t *task) (client.Response, error) {
	file, err := os.Open(t.text("path"))
	if err != nil {
		return client.Response{}, err
	}
	defer file.Close()
	rows, err := csv.NewReader(file).ReadAll()
	if err != nil {
		return client.Response{}, err
	}
	body, err := json.Marshal(rows)
	return client.Response{Status: 200, Body: body}, err
}

// csvWrite writes beside the file, under a name of the task's own, and renames: a reader sees all of it or nothing, and doing
// it again changes nothing.
func csvWrite(_ context.Context, t *task) (client.Response, error) {
	var rows [][]string
	if err := json.Unmarshal(t.value("rows"), &rows); err != nil {
		return client.Response{}, err
	}
	path := t.text("path")
	if rows == nil || path == "" {
		return client.Response{}, errors.New("the variable rows or path is missing")
	}
	beside := path + ".tmp." + t.ID
	file, err := os.Create(beside)
	if err != nil {
		return client.Response{}, err
	}
	err = errors.Join(csv.NewWriter(file).WriteAll(rows), file.Sync(), file.Close())
	if err == nil {
		err = os.Rename(beside, path)
	}
	if err == nil {
		err = syncFolder(filepath.Dir(path))
	}
	return client.Response{Status: 200, Body: []byte(path)}, err
}

// syncFolder has a rename outlive the machine.
func syncFolder(path string) error {
	folder, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}
