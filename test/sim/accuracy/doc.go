// Package accuracy measures the rows of the project's table of accuracy, each
// strategy beside the others, and writes them with their targets as Markdown:
// rows.yaml has the rows.
package accuracy
