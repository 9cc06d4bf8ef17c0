<?php
// Stores or reads the values of the lines that compare.py sends: key, type and payload, separated by tabs.
function handle_lines(string $mode, callable $store, callable $find): void
{
    while (($line = fgets(STDIN)) !== false) {
        [$key, $type, $payload] = explode("\t", rtrim($line, "\n"));
        if ($mode === 'write') {
            $value = match ($type) {
                'str', 'bytes' => hex2bin($payload),
                'int' => (int)$payload,
                'float' => (float)$payload,
                'bool' => $payload === '1',
                'none' => null,
                'list' => [1, 'a', 2.5],
            };
            $store($key, $value);
            continue;
        }
        [$found, $value] = $find($key);
        echo $key, "\t", $found ? format_value($value) : "missing\t", "\n";
    }
}

function format_value(mixed $value): string
{
    return match (gettype($value)) {
        'string' => "str\t" . bin2hex($value),
        'integer' => "int\t$value",
        'double' => "float\t" . var_export($value, true),
        'boolean' => "bool\t" . (int)$value,
        'NULL' => "none\t",
        default => "list\t" . json_encode($value),
    };
}
