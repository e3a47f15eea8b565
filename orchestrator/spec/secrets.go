package spec

import (
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/outbid-dev/outbid/orchestrator/limits"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Secrets returns the environment variables whose values are secrets: a map from variable to name of the secret.
func Secrets(s *outbidv1.SweepSpec) map[string]string {
	if f := s.GetFunction(); f != nil {
		return f.GetSecrets()
	}
	return s.GetProgram().GetSecrets()
}

// Env returns the environment variables that are written in the spec, and the path of that field.
func Env(s *outbidv1.SweepSpec) (field string, env map[string]string) {
	if f := s.GetFunction(); f != nil {
		return "function.env", f.GetEnv()
	}
	return "program.env", s.GetProgram().GetEnv()
}

// CheckSecretName describes what is wrong with the name of a secret, or returns "".
func CheckSecretName(name string) string {
	if !regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_-]*$`).MatchString(name) || len(name) > limits.SecretName {
		return "must be a letter or _ followed by letters, digits, _ and -, at most " + itoa(limits.SecretName) + " in total"
	}
	return ""
}

// CheckTenant returns an *Error for the field "tenant" if the name is invalid, or nil.
func CheckTenant(name string) error {
	if !isSlug(name) {
		return wrong("tenant", "%.80q is not a valid name of a tenant; use lower-case letters, digits and dashes, starting with a letter", name)
	}
	return nil
}

// checkSecrets checks the variables of a workload whose values are secrets.
func checkSecrets(workload string, env, secrets map[string]string) error {
	field := workload + ".secrets"
	if len(secrets) > limits.SpecSecrets {
		return wrong(field, "has %d variables; at most %d can be secrets", len(secrets), limits.SpecSecrets)
	}
	if err := checkEnv(field, secrets); err != nil {
		return err
	}
	for _, variable := range sortedKeys(secrets) {
		if problem := CheckSecretName(secrets[variable]); problem != "" {
			return wrong(field+"."+variable, "the name of a secret %s", problem)
		}
		if _, twice := env[variable]; twice {
			return wrong(field+"."+variable, "is also in env; set it in one of them")
		}
	}
	return nil
}

// LooksSecret reports whether a variable's name suggests that its value is a secret.
func LooksSecret(variable string) bool {
	words := regexp.MustCompile(`(^|_)(KEY|[A-Z0-9]*(TOKEN|SECRET|PASSWORD|PASSWD|APIKEY|ACCESSKEY|CREDENTIALS))(_|$)`)
	return words.MatchString(strings.ToUpper(variable))
}

// moveSecrets rewrites "env: {A: {secret: b}}" of a program or function as "secrets: {A: b}", the form in the schema.
// Nodes keep their line numbers for errors.
func moveSecrets(root *yaml.Node) {
	for _, workload := range []string{"program", "function"} {
		within := child(root, workload)
		env := child(within, "env")
		if env == nil || env.Kind != yaml.MappingNode {
			continue
		}
		var kept, moved []*yaml.Node
		for i := 0; i+1 < len(env.Content); i += 2 {
			name, value := env.Content[i], env.Content[i+1]
			if secret := child(value, "secret"); secret != nil && len(value.Content) == 2 && secret.Kind == yaml.ScalarNode {
				moved = append(moved, name, secret)
			} else {
				kept = append(kept, name, value)
			}
		}
		if len(moved) == 0 {
			continue
		}
		env.Content = kept
		if secrets := child(within, "secrets"); secrets != nil && secrets.Kind == yaml.MappingNode {
			secrets.Content = append(secrets.Content, moved...)
			continue
		}
		key := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: "secrets", Line: env.Line}
		within.Content = append(within.Content, key, &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map", Line: env.Line, Content: moved})
	}
}

// child returns the value of a key of a mapping, or nil.
func child(node *yaml.Node, key string) *yaml.Node {
	if node != nil && node.Kind == yaml.DocumentNode && len(node.Content) == 1 {
		node = node.Content[0]
	}
	if node == nil || node.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(node.Content); i += 2 {
		if node.Content[i].Value == key {
			return node.Content[i+1]
		}
	}
	return nil
}
